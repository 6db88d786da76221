package planner

import (
	"github.com/dynctl/dynctl/internal/cluster"
	core "github.com/dynctl/dynctl/internal/planner"
)

// follow carries out what leads from the plan ordered last to another one.
func (f *fleet) follow(plan core.Plan) {
	actions := f.cfg.Actions(f.plan, plan)
	f.plan = plan
	for _, a := range actions {
		for range a.Workers {
			switch a.Kind {
			case core.ActionStart:
				f.start(a.Role, f.times.Start)
			case core.ActionFlip:
				f.flip(a.Role)
			case core.ActionDrain:
				f.drain(a.Role)
			}
		}
	}
}

// start takes a device. It holds it from now on.
func (f *fleet) start(role cluster.Role, took float64) *worker {
	f.names++
	w := &worker{name: f.names, role: role, state: core.WorkerStarting, held: true, action: core.ActionStart, since: f.now}
	w.stepped = func() { f.stepped(w) }
	f.workers = append(f.workers, w)
	f.at(f.now+took, func() {
		if w.state == core.WorkerStarting {
			f.serve(w)
		}
	})
	return w
}

func (f *fleet) serve(w *worker) {
	if w.action != "" && f.now > w.since {
		f.finished = append(f.finished, core.Duration{Kind: w.action, Took: duration(f.now - w.since)})
	}
	w.state, w.action = core.WorkerReady, ""
	f.feed()
	f.place()
	f.step(w)
}

// leaver returns the worker of a role that leaves most easily: one that starts, else the one with the
// least KV.
func (f *fleet) leaver(role cluster.Role) *worker {
	if starting := f.of(role, core.WorkerStarting); len(starting) > 0 {
		return starting[len(starting)-1]
	}
	var best *worker
	for _, w := range f.of(role, core.WorkerReady) {
		if best == nil || w.kv < best.kv || w.kv == best.kv && w.current == nil && best.current != nil {
			best = w
		}
	}
	return best
}

func (f *fleet) drain(role cluster.Role) {
	w := f.leaver(role)
	if w == nil {
		return
	}
	if w.state == core.WorkerStarting {
		w.state, w.held, w.action = core.WorkerLost, false, ""
		return
	}
	w.state, w.action, w.since, w.until = core.WorkerDraining, core.ActionDrain, f.now, f.now+f.times.Drain
	f.handOver(w)
	f.at(w.until, func() { f.leave(w) })
}

// flip makes a worker of the other role one of this role.
func (f *fleet) flip(role cluster.Role) {
	other := cluster.RolePrefill
	if role == other {
		other = cluster.RoleDecode
	}
	w := f.leaver(other)
	if w == nil {
		return
	}
	if w.state == core.WorkerStarting {
		w.role = role
		return
	}
	w.state, w.action, w.since, w.until = core.WorkerDraining, core.ActionFlip, f.now, f.now+f.times.Flip
	f.handOver(w)
	f.at(w.until, func() { f.leave(w) })
}

// handOver moves what a worker has to others. What it computes at the moment ends where it is.
func (f *fleet) handOver(w *worker) {
	if len(f.of(cluster.RoleDecode, core.WorkerReady)) > 0 {
		moved := w.running
		w.running, w.kv = nil, 0
		f.ready = append(append([]*request(nil), moved...), f.ready...)
	}
	queue := w.queue
	w.queue = nil
	f.prompts = append(f.prompts, queue...)
	f.feed()
	f.place()
}

// leave ends a drain or a flip when nothing is left and its time is over.
func (f *fleet) leave(w *worker) {
	if w.state != core.WorkerDraining || f.now < w.until || w.current != nil || len(w.running) > 0 || w.busy {
		return
	}
	if w.action == core.ActionFlip {
		if w.role == cluster.RolePrefill {
			w.role = cluster.RoleDecode
		} else {
			w.role = cluster.RolePrefill
		}
		f.serve(w)
		return
	}
	f.finished = append(f.finished, core.Duration{Kind: core.ActionDrain, Took: duration(f.now - w.since)})
	w.state, w.held, w.action = core.WorkerLost, false, ""
}
