package externaltest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// asks are the kinds of requests.
func asks() map[string]func() *external.Request {
	return map[string]func() *external.Request{
		"tokens": func() *external.Request { return Ask(Prompt(20), 8) },
		"body":   func() *external.Request { return AskBody(protocol.APIChat, `{"messages":[],"max_tokens":8}`) },
		"stream": func() *external.Request {
			return AskBody(protocol.APIChat, `{"messages":[],"max_tokens":8,"stream":true}`)
		},
	}
}

func (s Setup) failures(t *testing.T) {
	d, e := s.start(t, Options{}, nil)
	for name, ask := range asks() {
		for _, test := range []struct {
			f    Failure
			want requestplane.Kind
			text string
		}{
			{Internal, requestplane.KindUnavailable, "the engine died"},
			{Busy, requestplane.KindOverloaded, "busy"},
			{TooMany, requestplane.KindOverloaded, "too many"},
			{Refuse, requestplane.KindInvalidArgument, "temperature is too hot"},
			{Cut, requestplane.KindUnavailable, ""},
			{Garbage, requestplane.KindUnavailable, ""},
			{Endless, requestplane.KindUnavailable, "longer"},
			{Redirect, requestplane.KindUnavailable, "redirect"},
			{ErrorEvent, requestplane.KindUnavailable, "CUDA error"},
		} {
			if test.f == Endless && testing.Short() {
				continue
			}
			d.Fail(test.f)
			_, err := Collect(t.Context(), t, e, ask())
			remote := Kind(t, err, test.want)
			if !strings.Contains(remote.Message, test.text) || len(remote.Message) > 2048 || strings.Contains(remote.Message, "\n") {
				t.Errorf("%s, failure %d: message %.300q, want %q in it", name, test.f, remote.Message, test.text)
			}
		}
		collect(t, e, ask()) // it goes on as before
	}
	d.Close()
	for _, ask := range asks() {
		_, err := Collect(t.Context(), t, e, ask())
		Kind(t, err, requestplane.KindUnavailable)
	}
	Kind(t, e.Health(t.Context()), requestplane.KindUnavailable)
	if _, err := e.Probe(t.Context()); !errors.Is(err, external.ErrNotReady) {
		t.Errorf("probe of a server that is gone: %v", err)
	}
}

func (s Setup) silence(t *testing.T) {
	d, e := s.start(t, Options{}, func(c *wire.Config) { c.Limits.Silence = 200 * time.Millisecond })
	if _, err := e.Probe(t.Context()); err != nil { // not within the limit of silence
		t.Fatal(err)
	}
	for _, ask := range asks() {
		d.Fail(Stall)
		_, err := Collect(t.Context(), t, e, ask())
		if remote := Kind(t, err, requestplane.KindUnavailable); !strings.Contains(remote.Message, "nothing for too long") {
			t.Errorf("a server that says nothing: %v", err)
		}
	}
}

// eventually polls until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	end := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

func (s Setup) cancel(t *testing.T) {
	d, e := s.start(t, Options{}, nil)
	n := 0
	for name, ask := range asks() {
		ctx, cancel := context.WithCancelCause(t.Context())
		d.Fail(Stall)
		before := len(d.Seen())
		cause := errors.New("the client left")
		go func() { // ends with the request, which cancel ends
			for len(d.Seen()) == before && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			cancel(cause)
		}()
		_, err := Collect(ctx, t, e, ask())
		cancel(cause)
		if !errors.Is(err, cause) {
			t.Errorf("%s: error %v, want the cause", name, err)
		}
		n++
		eventually(t, name+": the server sees that the client left", func() bool { return d.Cancelled() == n })
	}
}

func (s Setup) emitFails(t *testing.T) {
	gate := make(chan struct{}, 2)
	gate <- struct{}{}
	gate <- struct{}{}
	d, e := s.start(t, Options{Gate: func(ctx context.Context) error {
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}, nil)
	stop := errors.New("stop")
	err := e.Generate(t.Context(), Ask(Prompt(8), 8), func(protocol.EngineOutput) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("error %v, want that of emit", err)
	}
	eventually(t, "the server sees that the client left", func() bool { return d.Cancelled() == 1 })
}
