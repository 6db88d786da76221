package vllm

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external/wire"
)

// A server that cannot load its weights again is not woken from a sleep without them, and it is
// said what to do.
func TestWakeWithoutReload(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /wake_up", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /is_sleeping", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"is_sleeping":false}`) })
	server := httptest.NewServer(mux)
	defer server.Close()
	e, err := New(wire.Config{URL: server.URL, Engine: cluster.EngineSpec{Backend: cluster.BackendVLLM}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.Wake(t.Context(), cluster.SleepLight); err != nil {
		t.Error(err)
	}
	if err := e.Wake(t.Context(), cluster.SleepDeep); err == nil || !strings.Contains(err.Error(), "wake it there if it slept at level 1") {
		t.Errorf("%v", err)
	}
}
