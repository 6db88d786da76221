package controller

import (
	"github.com/dynctl/dynctl/internal/cluster"
)

// item is an assignment that Plan is changing. The assignment is the caller's until edit
// replaces it by a copy: change it by edit only.
type item struct {
	*cluster.Assignment
	stored  *cluster.Assignment // nil for a worker that Plan creates
	status  report
	deleted bool
	why     string

	form  *form // never nil for items in planner.work
	bytes int64 // the memory that count has added to the device
}

// report is what a plan needs of a worker's status; zero without one.
type report struct {
	state      cluster.State
	generation int64
	memory     int64 // bytes
	pool       pool
	noMemory   bool
	fitsAlone  bool
	reason     string
	declined   cluster.Declined
	sleep      int
}

func reportOf(st cluster.WorkerStatus) report {
	return report{
		state: st.State, generation: st.Generation, memory: st.MemoryBytes, pool: pool{st.BlockBytes, st.Stats.BlockSize},
		noMemory: st.NoMemory, fitsAlone: st.FitsAlone, reason: st.Reason, declined: st.Declined, sleep: st.Sleep,
	}
}

// sameReport reports whether a plan would make no difference between two statuses. Their
// counters differ with each heartbeat.
func sameReport(a, b cluster.WorkerStatus) bool { return reportOf(a) == reportOf(b) }

// add takes a worker into the plan. stored is its assignment in the store, if any.
func (p *planner) add(a, stored *cluster.Assignment) *item {
	it := &item{Assignment: a, stored: stored}
	if st, ok := p.Status[a.Name]; ok {
		it.status = reportOf(st)
	}
	p.work = append(p.work, it)
	p.byName[a.Name] = it
	if a.Replaces != "" {
		p.heirs[a.Replaces] = append(p.heirs[a.Replaces], it)
	}
	p.enlist(it)
	return it
}

// edit changes the assignment of a worker, and what is counted of it.
func (p *planner) edit(it *item, change func(*cluster.Assignment)) {
	p.count(it, -1)
	if it.Assignment == it.stored {
		own := *it.stored
		it.Assignment = &own
	}
	change(it.Assignment)
	if it.form.spec != specOf(it) {
		p.discharge(it)
		p.enlist(it)
	}
	p.count(it, 1)
}

// drop deletes a worker.
func (p *planner) drop(it *item, why string) {
	p.count(it, -1)
	it.deleted, it.why = true, why
}

// leaves reports whether the worker is gone or is to leave.
func (it *item) leaves() bool { return it.deleted || it.Desire == cluster.DesireRemove }

// placed reports whether a worker needs a node: to run, or to stand for an attached server while
// that sleeps. A server that its node has started ends with the node.
func (it *item) placed() bool {
	return it.Desire == cluster.DesireRun || it.SleepLevel() > 0 && it.Engine.Server.Attached()
}

// serving reports whether a worker serves as its current assignment asks.
func (it *item) serving() bool {
	return it.status.state.Serving() && it.status.generation == it.Generation
}

// refuses reports whether the worker has failed to take the form before.
func (it *item) refuses(f cluster.Form) bool { return it.Refused.Why != "" && it.Refused.Form == f }

// unplace takes the place of a worker away.
func (p *planner) unplace(it *item, why string) {
	it.why = why
	p.edit(it, func(a *cluster.Assignment) {
		a.Node, a.Device = "", ""
		a.Generation++
	})
}

// remove orders a worker to leave. A worker without a node is deleted at once.
func (p *planner) remove(it *item, why string) {
	p.edit(it, func(a *cluster.Assignment) { a.Desire = cluster.DesireRemove })
	it.why = why
	if it.Node == "" {
		p.drop(it, why)
	}
}

// become changes a worker in place. It remembers the old form, to revert to if the change
// fails, except for a worker that is a successor.
func (p *planner) become(it *item, f cluster.Form) {
	p.edit(it, func(a *cluster.Assignment) {
		if a.Last == (cluster.Form{}) && a.Replaces == "" {
			a.Last = a.Form()
		}
		a.Refused = cluster.Refusal{}
		a.Become(f)
		a.Generation++
	})
}

// find returns the worker with that name, or nil.
func (p *planner) find(name string) *item { return p.byName[name] }

// successor returns the worker that replaces x, or nil.
func (p *planner) successor(x *item) *item {
	for _, it := range p.heirs[x.Name] {
		if it.Replaces == x.Name && !it.leaves() {
			return it
		}
	}
	return nil
}

// understudy reports whether a worker is the successor of one that is not to leave yet.
// The two count as one.
func (p *planner) understudy(it *item) bool {
	x := p.find(it.Replaces)
	return x != nil && !x.leaves()
}
