package externaltest

import (
	"encoding/json"
	"net/http"
	"slices"
)

// sleep is what of its memory a server has given back.
type sleep struct {
	weights, kv bool // given back
	lost        bool // the weights' content, also after the memory was taken again
}

// refusal says why a server cannot compute; empty if it can.
func (s sleep) refusal() string {
	switch {
	case s.weights || s.kv:
		return "the engine sleeps"
	case s.lost:
		return "the weights are garbage"
	}
	return ""
}

// Asleep reports whether it sleeps, or has lost its weights.
func (d *Double) Asleep() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sleep.refusal() != ""
}

// SetAsleep puts it to sleep, or wakes it, as somebody else would.
func (d *Double) SetAsleep(asleep bool) {
	d.change(func(s *sleep) { *s = sleep{weights: asleep, kv: asleep} })
}

func (d *Double) change(f func(*sleep)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.sleep)
}

// vllmSleep adds what vLLM has with VLLM_SERVER_DEV_MODE=1.
func (d *Double) vllmSleep(mux *http.ServeMux) {
	mux.HandleFunc("POST /sleep", func(_ http.ResponseWriter, r *http.Request) {
		if !d.o.NoSleep { // without --enable-sleep-mode nothing happens, and it says 200
			d.change(func(s *sleep) { *s = sleep{weights: true, kv: true, lost: r.URL.Query().Get("level") == "2"} })
		}
	})
	mux.HandleFunc("POST /wake_up", func(_ http.ResponseWriter, r *http.Request) {
		tags := r.URL.Query()["tags"]
		d.change(func(s *sleep) {
			s.weights = s.weights && len(tags) > 0 && !slices.Contains(tags, "weights")
			s.kv = s.kv && len(tags) > 0 && !slices.Contains(tags, "kv_cache")
		})
	})
	mux.HandleFunc("POST /collective_rpc", func(w http.ResponseWriter, r *http.Request) {
		var call struct{ Method string }
		if json.NewDecoder(r.Body).Decode(&call) != nil || call.Method != "reload_weights" {
			refuse(w, http.StatusBadRequest, "no such method")
			return
		}
		d.change(func(s *sleep) { s.lost = s.lost && s.weights })
	})
	d.get(mux, "/is_sleeping", func() any {
		d.mu.Lock()
		defer d.mu.Unlock()
		return map[string]any{"is_sleeping": d.sleep.weights || d.sleep.kv}
	})
}

// sglangSleep adds what SGLang has. It ends when it is told to give back what it has given back,
// or to take again what it has.
func (d *Double) sglangSleep(mux *http.ServeMux) {
	move := func(release bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var body struct{ Tags []string }
			if json.NewDecoder(r.Body).Decode(&body) != nil || len(body.Tags) == 0 {
				refuse(w, http.StatusBadRequest, "no tags")
				return
			}
			d.change(func(s *sleep) {
				for _, tag := range body.Tags {
					region := map[string]*bool{"weights": &s.weights, "kv_cache": &s.kv}[tag]
					if region == nil || *region == release {
						d.fabric.note("the scheduler ends: %s %s", r.URL.Path, tag)
						continue
					}
					*region = release
					s.lost = s.lost || release && tag == "weights" && d.o.NoBackup
				}
			})
		}
	}
	mux.HandleFunc("POST /release_memory_occupation", move(true))
	mux.HandleFunc("POST /resume_memory_occupation", move(false))
	mux.HandleFunc("POST /update_weights_from_disk", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Path string `json:"model_path"`
		}
		if json.NewDecoder(r.Body).Decode(&body) != nil || body.Path != "/models/"+d.o.Model {
			reply(w, map[string]any{"success": false, "message": "there is no such model"})
			return
		}
		d.change(func(s *sleep) { s.lost = s.lost && s.weights })
		reply(w, map[string]any{"success": true, "message": ""})
	})
}
