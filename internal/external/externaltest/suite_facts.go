package externaltest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
)

func (s Setup) probe(t *testing.T) {
	_, e := s.start(t, Options{Loras: []string{"tuned"}}, nil)
	f, err := e.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.Models, []string{"m", "tuned"}) || f.Parents["tuned"] != "m" || len(f.Parents) != 1 {
		t.Errorf("models %v, parents %v", f.Models, f.Parents)
	}
	if f.Mode != "" || f.Meets != nil {
		t.Errorf("mode %q, meets %+v of a server that exchanges nothing", f.Mode, f.Meets)
	}
	if err := e.Health(t.Context()); err != nil {
		t.Errorf("health: %v", err)
	}
	if e.Exchange() != external.ExchangeNone {
		t.Errorf("exchange %q", e.Exchange())
	}
	t.Run("another model", func(t *testing.T) {
		_, e := s.start(t, Options{}, func(c *wire.Config) { c.Model = "other" })
		if _, err := e.Probe(t.Context()); err == nil || errors.Is(err, external.ErrNotReady) || !strings.Contains(err.Error(), `"other"`) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		cancel(cause)
		if _, err := e.Probe(ctx); !errors.Is(err, cause) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("wrong address", func(t *testing.T) {
		for _, address := range []string{"", "ftp://x", "http://", "http://user:secret@host", "x"} {
			_, err := s.New(wire.Config{Engine: cluster.EngineSpec{Backend: s.Backend}, URL: address})
			if err == nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("%q: %v", address, err)
			}
		}
		if _, err := s.New(wire.Config{Engine: cluster.EngineSpec{Backend: s.Backend, Server: cluster.External{Connector: "pigeon"}}, URL: "http://x"}); err == nil {
			t.Error("an unknown connector was taken")
		}
		if _, err := s.New(wire.Config{Engine: cluster.EngineSpec{Backend: s.Backend, Server: cluster.External{CAFile: "/nowhere"}}, URL: "http://x"}); err == nil {
			t.Error("a missing file of certificates was taken")
		}
	})
}

func (s Setup) load(t *testing.T) {
	for _, ranks := range []int{1, 3} {
		if ranks > 1 && s.Backend != cluster.BackendVLLM && s.Backend != cluster.BackendSGLang {
			continue
		}
		_, e := s.start(t, Options{Ranks: ranks}, nil)
		l, err := e.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if l.Running == nil || *l.Running != 2*ranks || l.Waiting == nil || *l.Waiting != ranks {
			t.Errorf("running %v, waiting %v of %d ranks", l.Running, l.Waiting, ranks)
		}
		if s.Backend != cluster.BackendOpenAI && (l.KVUsage == nil || *l.KVUsage != 0.25) {
			t.Errorf("KV use %v, want 0.25", l.KVUsage)
		}
	}
	_, e := s.start(t, Options{NoMetrics: true}, nil)
	l, err := e.Load(t.Context())
	if err != nil || l != (external.Load{}) {
		t.Errorf("load %+v of a server without metrics, %v: nothing is known", l, err)
	}
}
