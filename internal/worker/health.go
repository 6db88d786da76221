package worker

import "github.com/dynctl/dynctl/internal/runtime"

// watched has an endpoint of the role watched. All of them need the engine, which is probed
// for the first: by a step of one token, while it computes nothing else. That it computes
// was proven by the warm-up.
func (t *term) watched() []runtime.ServeOption {
	check := t.cfg.Health
	if !check.Enabled {
		return nil
	}
	if first := t.probed.Load(); first != nil {
		return []runtime.ServeOption{runtime.WithHealthOf(first)}
	}
	canary := t.core.canary(check)
	if canary == nil {
		return nil
	}
	return []runtime.ServeOption{runtime.WithCanary(*canary)}
}

// unhealthy says why the worker may not answer requests; empty if it does.
func (w *Worker) unhealthy() string {
	if t := w.term.Load(); t != nil {
		if s := t.probed.Load(); s != nil {
			return s.Health().Why
		}
	}
	return ""
}

// Endpoints returns the health of the endpoints that the worker serves at present, by name.
func (w *Worker) Endpoints() map[string]runtime.Health {
	out := map[string]runtime.Health{}
	if t := w.term.Load(); t != nil {
		for name, h := range t.drt.Health() {
			out[name.Name] = h
		}
	}
	return out
}
