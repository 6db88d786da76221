package trtllm

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
)

var _ external.EventQueue = (*Engine)(nil)

func TestDrainEvents(t *testing.T) {
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/kv_cache_events" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		if asked++; asked > 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, `[{"event_id":0}]`)
	}))
	t.Cleanup(srv.Close)
	e, err := New(wire.Config{Engine: cluster.EngineSpec{Backend: cluster.BackendTensorRTLLM}, URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	body, err := e.DrainEvents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(body)
	if err := body.Close(); err != nil {
		t.Error(err)
	}
	if err != nil || string(b) != `[{"event_id":0}]` {
		t.Errorf("%s, %v", b, err)
	}
	if _, err := e.DrainEvents(t.Context()); err == nil {
		t.Error("a refusal is no error")
	}
}
