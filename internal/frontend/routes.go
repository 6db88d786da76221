package frontend

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/metrics"
)

func (f *Frontend) routes() http.Handler {
	mux := http.NewServeMux()
	api := func(pattern string, h http.HandlerFunc) { mux.Handle(pattern, f.authorized(f.settled(h))) }
	api("POST /v1/chat/completions", f.generating(metrics.EndpointChatCompletions, func() request { return &chatRequest{} }))
	api("POST /v1/completions", f.generating(metrics.EndpointCompletions, func() request { return &completionRequest{} }))
	api("GET /v1/models", f.listModels)
	api("GET /v1/models/{id...}", f.getModel)
	mux.HandleFunc("GET /health", f.health)
	mux.HandleFunc("GET /ready", f.ready)
	mux.HandleFunc("GET /live", f.live)
	mux.Handle("GET /metrics", Insiders(f.cfg.APIKey, f.cfg.Metrics.Handler()))
	mux.Handle("POST /clear_kv_blocks", Insiders(f.cfg.APIKey, http.HandlerFunc(f.clearKVBlocks)))
	mux.Handle("POST /flush_cache", Insiders(f.cfg.APIKey, http.HandlerFunc(f.flushCache)))
	mux.Handle("GET /busy_threshold", Insiders(f.cfg.APIKey, http.HandlerFunc(f.getBusyThresholds)))
	mux.Handle("POST /busy_threshold", Insiders(f.cfg.APIKey, http.HandlerFunc(f.setBusyThresholds)))
	mux.HandleFunc("/", unrouted)
	return identified(f.recovered(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if clean := path.Clean(r.URL.Path); clean != strings.TrimSuffix(r.URL.Path, "/") && clean != r.URL.Path {
			unrouted(w, r) // the mux would redirect, and clients turn a redirected POST into a GET
			return
		}
		mux.ServeHTTP(w, r)
	})))
}

// allowedMethods returns the methods of a path, or "" for an unknown one.
func allowedMethods(path string) string {
	switch {
	case path == "/v1/chat/completions", path == "/v1/completions", path == "/clear_kv_blocks", path == "/flush_cache":
		return "POST, OPTIONS"
	case path == "/busy_threshold":
		return "GET, HEAD, POST, OPTIONS"
	case path == "/v1/models", strings.HasPrefix(path, "/v1/models/"), path == "/health", path == "/ready", path == "/live", path == "/metrics":
		return "GET, HEAD, OPTIONS"
	}
	return ""
}

// unrouted answers requests that no handler takes.
func unrouted(w http.ResponseWriter, r *http.Request) {
	allowed := allowedMethods(r.URL.Path)
	if allowed == "" {
		invalid("", "Unknown request URL: %s %s.", r.Method, r.URL.Path).withCode("unknown_url").withStatus(http.StatusNotFound).write(w)
		return
	}
	w.Header().Set("Allow", allowed)
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	invalid("", "Method %s is not allowed for %s; allowed are %s.", r.Method, r.URL.Path, allowed).
		withCode("method_not_allowed").withStatus(http.StatusMethodNotAllowed).write(w)
}

// modelItem is one entry of /v1/models.
type modelItem struct {
	ID            string `json:"id"`
	Object        string `json:"object"`
	Created       int64  `json:"created"`
	OwnedBy       string `json:"owned_by"`
	ContextWindow int    `json:"context_window,omitempty"` // 0 where nobody tells
	MaxModelLen   int    `json:"max_model_len,omitempty"`  // the same, as vLLM and SGLang name it
	Parent        string `json:"parent,omitempty"`         // of a LoRA adapter: its model
}

func (m *servedModel) item() modelItem {
	return modelItem{ID: m.name, Object: "model", Created: m.created.Unix(), OwnedBy: "dynctl", ContextWindow: m.card.ContextLength, MaxModelLen: m.card.ContextLength, Parent: m.base}
}

// listModels lists the models that have a worker in discovery. Other known models cannot
// answer.
func (f *Frontend) listModels(w http.ResponseWriter, _ *http.Request) {
	items := []modelItem{}
	for _, m := range f.registry.list() {
		if f.served(m) {
			items = append(items, m.item())
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": items})
}

// served reports whether a worker of the model is in discovery.
func (f *Frontend) served(m *servedModel) bool {
	return slices.ContainsFunc(f.workers.All(), func(i cluster.Instance) bool { return m.has(i.InstanceID) })
}

func (f *Frontend) getModel(w http.ResponseWriter, r *http.Request) {
	m, err := f.model(r.PathValue("id"))
	if err == nil && !f.served(m) {
		err = notServed(m.name)
	}
	if err != nil {
		err.write(w)
		return
	}
	writeJSON(w, http.StatusOK, m.item())
}

// maxListed bounds how many models an error lists.
const maxListed = 20

// model finds a model that is ready, or returns an error that lists those that are.
func (f *Frontend) model(name string) (*servedModel, *apiError) {
	switch m := f.registry.find(name); {
	case m != nil && m.ready():
		return m, nil
	case m != nil, f.registry.expected(name):
		return nil, notServed(name)
	}
	var names []string
	for _, m := range f.registry.list() {
		names = append(names, m.name)
	}
	what := "no model is served now"
	if len(names) > maxListed {
		names = append(names[:maxListed], "...")
	}
	if len(names) > 0 {
		what = "models served here are " + strings.Join(names, ", ")
	}
	e := invalid("model", "The model '%s' does not exist: %s.", name, what).withCode("model_not_found").withStatus(http.StatusNotFound)
	e.metric = metrics.ErrorNotFound
	return nil, e
}

// notServed is the error for a declared model without workers, which starts or comes
// back.
func notServed(name string) *apiError {
	return unavailable(fmt.Sprintf("No worker is ready to serve the model '%s' at the moment.", name), retryLater)
}

// health reports whether the frontend takes requests. Insiders also see the models it can
// serve.
func (f *Frontend) health(w http.ResponseWriter, r *http.Request) {
	if stage := f.notServing(); stage != "" {
		notReady(w, stage)
		return
	}
	if !Insider(r, f.cfg.APIKey) {
		writeJSON(w, http.StatusOK, map[string]any{"status": "healthy"})
		return
	}
	endpoints := []string{}
	instances := slices.DeleteFunc(slices.Clone(f.workers.Instances()), func(i cluster.Instance) bool {
		return !slices.ContainsFunc(f.registry.list(), func(m *servedModel) bool { return m.has(i.InstanceID) })
	})
	for _, inst := range instances {
		endpoints = append(endpoints, inst.Of().String())
	}
	writeJSON(w, http.StatusOK, map[string]any{"status": "healthy", "endpoints": endpoints, "instances": instances})
}

// notServing returns why the frontend takes no requests, or "".
func (f *Frontend) notServing() (stage string) {
	switch {
	case f.gate.isClosed():
		return "draining"
	case !f.registry.isSettled():
		return "starting"
	}
	return ""
}

func notReady(w http.ResponseWriter, stage string) {
	writeJSON(w, http.StatusServiceUnavailable, map[string]any{"status": "not_ready", "stage": stage, "message": "Service is not ready"})
}

// ready reports whether a request for the model that the query names, or for any model,
// would go to a worker now.
func (f *Frontend) ready(w http.ResponseWriter, r *http.Request) {
	if stage := f.notServing(); stage != "" {
		notReady(w, stage)
		return
	}
	name := r.URL.Query().Get("model")
	routable := f.workers.Instances()
	for _, m := range f.registry.list() {
		if (name == "" || m.name == name) && slices.ContainsFunc(routable, func(i cluster.Instance) bool { return m.has(i.InstanceID) }) {
			writeJSON(w, http.StatusOK, map[string]any{"status": "ready"})
			return
		}
	}
	notReady(w, "no worker")
}

// live reports whether the process works; if not, it should be restarted.
func (f *Frontend) live(w http.ResponseWriter, _ *http.Request) {
	if f.ctx.Err() != nil {
		writeJSON(w, http.StatusServiceUnavailable, map[string]any{"status": "shutting_down"})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"status": "live", "message": "Service is live"})
}
