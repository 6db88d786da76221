package dynamo

import (
	"encoding/json"
	"net/http"
	"time"
)

// Health says which of the endpoints that the runtime serves work: by name, "ready" or why
// it is not. An endpoint without a canary is ready.
func (r *Runtime) Health() (ready bool, endpoints map[string]string) {
	ready, endpoints = true, map[string]string{}
	for name, h := range r.d.Health() {
		endpoints[name.String()] = "ready"
		if !h.Ready {
			ready, endpoints[name.String()] = false, "notready: "+h.Why
		}
	}
	return ready, endpoints
}

// HealthHandler answers with the health as JSON, and with status 503 if an endpoint does not
// work: for a readiness probe, as the status server of dynamod does under /health.
func (r *Runtime) HealthHandler() http.Handler {
	begin := time.Now()
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		ready, endpoints := r.Health()
		status, code := "ready", http.StatusOK
		if !ready {
			status, code = "notready", http.StatusServiceUnavailable
		}
		up := time.Since(begin)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(map[string]any{ // an error means that the caller has left
			"status": status, "endpoints": endpoints,
			"uptime": map[string]int64{"secs": int64(up / time.Second), "nanos": int64(up % time.Second)},
		})
	})
}
