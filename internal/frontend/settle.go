package frontend

import (
	"net/http"
	"time"
)

// settled delays requests that come while a frontend starts, until it has loaded the models
// that it found, or could not load them: a client that another frontend served a moment
// ago would else be told that there is no worker. The delay is at most limits.settle.
func (f *Frontend) settled(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !f.registry.isSettled() {
			late := time.NewTimer(f.limits.settle)
			defer late.Stop()
			select {
			case <-f.registry.settled:
			case <-late.C:
			case <-r.Context().Done():
			}
		}
		next.ServeHTTP(w, r)
	})
}

// isSettled reports whether the first attempt to load each model has ended.
func (r *registry) isSettled() bool {
	select {
	case <-r.settled:
		return true
	default:
		return false
	}
}

// settle closes settled once no file of a model is being loaded. Only run calls it.
func (r *registry) settle() {
	if r.isSettled() {
		return
	}
	for _, s := range r.sets {
		if s.loading {
			return
		}
	}
	close(r.settled)
}
