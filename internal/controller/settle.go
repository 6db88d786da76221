package controller

import "github.com/dynctl/dynctl/internal/cluster"

// settle applies the effects of what happened to one assignment since it was written: its
// node was lost or drained, or the worker has stopped.
func (p *planner) settle(it *item) {
	nodeLives := p.byID[it.Node] != nil
	_, cordoned := p.Cordons[it.Node]
	switch {
	case it.Desire == cluster.DesireRemove && !nodeLives:
		p.drop(it, "removed: its node is gone")
	case it.Desire == cluster.DesireRemove && it.status.state == cluster.StateStopped && it.status.generation == it.Generation:
		p.drop(it, "removed")
	case it.placed() && it.Node != "" && !nodeLives:
		p.unplace(it, "its node is gone")
	case it.Desire == cluster.DesireDrain && it.Node != "" && !nodeLives:
		p.unplace(it, "drained; its node is gone")
		p.edit(it, func(a *cluster.Assignment) { a.Unplaced = it.why })
	case it.Desire == cluster.DesireRun && cordoned && !busy(it.status.state):
		p.unplace(it, "its node is drained")
	}
	if it.Node == "" && it.Replace { // it starts on another node anyway
		p.edit(it, func(a *cluster.Assignment) { a.Replace = false })
	}
	p.remember(it)
	p.judge(it)
}

// remember notes in the assignment at which level the worker's server sleeps: the worker may be
// gone when it is to wake.
func (p *planner) remember(it *item) {
	level := it.Asleep
	switch {
	case it.deleted:
	case it.status.state == cluster.StateSleeping && it.status.sleep > 0:
		level = it.status.sleep
	case it.serving():
		level = 0
	}
	if level != it.Asleep {
		p.edit(it, func(a *cluster.Assignment) { a.Asleep = level })
		it.why = join(it.why, "its server sleeps")
		if level == 0 {
			it.why = "its server is awake"
		}
	}
}

// judge checks the outcome of a change in place. It reverts a change that the worker
// could not make.
func (p *planner) judge(it *item) {
	if it.Last == (cluster.Form{}) || it.leaves() {
		return
	}
	why := ""
	switch st := it.status; {
	case it.serving():
		p.edit(it, func(a *cluster.Assignment) { a.Last = cluster.Form{} })
		it.why = "it serves as changed"
		return
	case st.state == cluster.StateFailed && st.generation == it.Generation:
		why = st.reason
	case st.declined.Generation == it.Generation:
		why = st.declined.Why
	default:
		return
	}
	p.edit(it, func(a *cluster.Assignment) {
		a.Refused = cluster.Refusal{Form: a.Form(), Why: why}
		a.Become(a.Last)
		a.Last = cluster.Form{}
		a.Generation++
	})
	it.why = "unchanged, because it cannot change: " + why
}

// busy reports whether a worker in this state may have requests.
func busy(s cluster.State) bool { return s.Serving() || s == cluster.StateDraining }
