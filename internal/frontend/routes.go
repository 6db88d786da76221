package frontend

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/dynctl/dynctl/internal/metrics"
)

func (f *Frontend) routes() http.Handler {
	mux := http.NewServeMux()
	api := func(pattern string, h http.HandlerFunc) { mux.Handle(pattern, f.authorized(h)) }
	api("POST /v1/chat/completions", f.chatCompletions)
	api("POST /v1/completions", f.completions)
	api("GET /v1/models", f.listModels)
	api("GET /v1/models/{id...}", f.getModel)
	mux.HandleFunc("GET /health", f.health)
	mux.HandleFunc("GET /live", f.live)
	mux.Handle("GET /metrics", f.registryHandler)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		e := invalid("", "Unknown request URL: %s %s.", r.Method, r.URL.Path).withCode("unknown_url")
		e.status = http.StatusNotFound
		if allowed := allowedMethod(r.URL.Path); allowed != "" && r.Method != allowed {
			e.status = http.StatusMethodNotAllowed
			e.Message = fmt.Sprintf("Method %s is not allowed for %s, use %s.", r.Method, r.URL.Path, allowed)
			w.Header().Set("Allow", allowed)
		}
		e.write(w)
	})
	return f.identified(f.recovered(mux))
}

func allowedMethod(path string) string {
	switch {
	case path == "/v1/chat/completions", path == "/v1/completions":
		return http.MethodPost
	case path == "/v1/models", strings.HasPrefix(path, "/v1/models/"), path == "/health", path == "/live", path == "/metrics":
		return http.MethodGet
	}
	return ""
}

// identified gives every request an id, the client's own if it sent one.
func (f *Frontend) identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		if !validID(id) {
			id = newID("")
		}
		w.Header().Set("X-Request-Id", id)
		next.ServeHTTP(w, r)
	})
}

func validID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for _, c := range id {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

// newID returns a fresh id with a prefix such as "chatcmpl-".
func newID(prefix string) string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}

// recovered turns a panic of a handler into a 500 and a log line; the server goes on.
func (f *Frontend) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			f.log.Error("request handler panicked", "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			internalError("Internal server error.").write(w)
		}()
		next.ServeHTTP(w, r)
	})
}

// authorized asks for the API key, if there is one.
func (f *Frontend) authorized(next http.Handler) http.Handler {
	if f.cfg.APIKey == "" {
		return next
	}
	want := sha256.Sum256([]byte(f.cfg.APIKey))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(key))
		if !ok || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			e := invalid("", "Incorrect API key provided. Send it as 'Authorization: Bearer KEY'.").withCode("invalid_api_key")
			e.status = http.StatusUnauthorized
			e.write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// modelItem is one entry of /v1/models.
type modelItem struct {
	ID            string `json:"id"`
	Object        string `json:"object"`
	Created       int64  `json:"created"`
	OwnedBy       string `json:"owned_by"`
	ContextWindow int    `json:"context_window"`
}

func (m *servedModel) item() modelItem {
	return modelItem{ID: m.name, Object: "model", Created: m.created.Unix(), OwnedBy: "dynctl", ContextWindow: m.card.ContextLength}
}

func (f *Frontend) listModels(w http.ResponseWriter, _ *http.Request) {
	items := []modelItem{}
	for _, m := range f.registry.list() {
		items = append(items, m.item())
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": items})
}

func (f *Frontend) getModel(w http.ResponseWriter, r *http.Request) {
	m, err := f.model(r.PathValue("id"))
	if err != nil {
		err.write(w)
		return
	}
	writeJSON(w, http.StatusOK, m.item())
}

// model finds a served model or says which there are.
func (f *Frontend) model(name string) (*servedModel, *apiError) {
	if m := f.registry.get(name); m != nil {
		return m, nil
	}
	var names []string
	for _, m := range f.registry.list() {
		names = append(names, m.name)
	}
	e := invalid("model", "The model '%s' does not exist. Served here: %s.", name, strings.Join(names, ", ")).withCode("model_not_found")
	e.status, e.metric = http.StatusNotFound, metrics.ErrorNotFound
	if len(names) == 0 {
		e.Message = fmt.Sprintf("The model '%s' does not exist: no model is served at present.", name)
	}
	return nil, e
}

// health answers whether the frontend takes requests; with what it can serve.
func (f *Frontend) health(w http.ResponseWriter, _ *http.Request) {
	if f.stage.Load() != stageReady {
		writeJSON(w, http.StatusServiceUnavailable, map[string]any{"status": "not_ready", "stage": "draining", "message": "Service is not ready"})
		return
	}
	endpoints := []string{}
	instances := f.workers.Instances()
	for _, inst := range instances {
		endpoints = append(endpoints, "dyn://"+inst.Namespace+"."+inst.Component+"."+inst.Endpoint)
	}
	writeJSON(w, http.StatusOK, map[string]any{"status": "healthy", "endpoints": endpoints, "instances": instances})
}

func (f *Frontend) live(w http.ResponseWriter, _ *http.Request) {
	if f.stage.Load() == stageStopping {
		writeJSON(w, http.StatusServiceUnavailable, map[string]any{"status": "shutting_down"})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"status": "live", "message": "Service is live"})
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client may have left
}

// limited bounds the time of a request.
func (f *Frontend) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.cfg.RequestTimeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, f.cfg.RequestTimeout, errRequestTimeout)
}
