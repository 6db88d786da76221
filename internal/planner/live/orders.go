package live

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/store"
)

// orders are those of one pool: what its planner and others have ordered, and what became of it.
type orders struct {
	*actor
	pool string

	seen    int64            // generation of the newest topology; 0: none yet
	whole   cluster.Topology // that it is
	touched int64            // generation of the newest one that concerned the pool
	handAt  time.Time
	hand    string // what somebody else did then
	waiting map[int64]time.Time
	changes []planner.Change // oldest first
	untold  bool             // a change has another result than the store's
}

// see takes in what is declared now. What concerns other pools alone is nothing to this one.
func (a *orders) see(now time.Time, d *Declared) {
	if d == nil || d.Generation == a.seen {
		return
	}
	first, before := a.seen == 0, a.whole
	a.seen, a.whole = d.Generation, d.whole
	planned := strings.HasPrefix(d.UpdatedBy, byPlanner)
	switch {
	case !first && !concerns(a.pool, before, d.whole):
		return
	case first && planned && !strings.HasPrefix(d.Reason, signature(a.pool)): // the newest is of another pool
		if n := len(a.changes); n > 0 && (a.changes[n-1].Result != planner.ResultUnknown || d.Prefill == a.changes[n-1].To.Prefill && d.Decode == a.changes[n-1].To.Decode) {
			a.touched = a.changes[n-1].Generation
		}
		return
	}
	a.touched = d.Generation
	switch {
	case first && planned && !slices.ContainsFunc(a.changes, func(c planner.Change) bool { return c.Generation == d.Generation }):
		a.note(planner.Change{
			Time: d.UpdatedAt, Node: strings.TrimPrefix(d.UpdatedBy, byPlanner), To: d.plan(0), Generation: d.Generation,
			Result: planner.ResultUnderWay, Detail: d.Reason,
		})
	case !first && !planned:
		a.handAt, a.hand = now, fmt.Sprintf("%s changed the topology (%s)", d.UpdatedBy, d.Reason)
	}
}

// concerns reports whether a new topology declares something else of a pool, or the same of all pools: then it is an
// order to all of them.
func concerns(pool string, before, after cluster.Topology) bool {
	changed := func(pool string) bool { return !declaration(before.In(pool)).Equal(declaration(after.In(pool))) }
	return changed(pool) || !slices.ContainsFunc(append(before.PoolNames(), after.PoolNames()...), changed)
}

// declaration is a topology without the record of its last change, and without a flip, which comes with numbers.
func declaration(t cluster.Topology) cluster.Topology {
	t.Generation, t.UpdatedAt, t.UpdatedBy, t.Reason, t.Flip = 0, time.Time{}, "", "", cluster.Flip{}
	return t
}

// note remembers a change.
func (a *orders) note(c planner.Change) {
	a.changes = append(a.changes, c)
	a.changes = slices.Clone(a.changes[max(0, len(a.changes)-rememberedChanges):])
	a.untold = true
}

// hold returns why nothing may be changed now.
func (a *orders) hold(now time.Time, v View, cfg planner.Config, c Connector) planner.Hold {
	hold := func(why planner.Refusal, format string, args ...any) planner.Hold {
		return planner.Hold{Refusal: why, Why: fmt.Sprintf(format, args...)}
	}
	switch {
	case cfg.Mode != planner.ModeAct:
		return planner.Hold{}
	case v.Declared == nil:
		return hold(planner.RefusedByHand, "Nothing is declared: dynctl up")
	case a.claimed != c && errors.Is(a.why, errDeposed):
		return hold(planner.RefusedNotLeader, "Another node leads")
	case a.claimed != c && c == ConnectorKubernetes && a.pods == nil:
		return hold(planner.RefusedConnector, "%v", a.why)
	case a.claimed != c:
		return hold(planner.RefusedNotLeader, "This node has not taken over from the leader before: %v", a.why)
	case c == ConnectorVirtual && a.pool != "":
		return hold(planner.RefusedConnector, "The keys of planner.connector virtual name no pool: it is for the main pool")
	case c == ConnectorVirtual && v.Virtual.newest() < a.fence, c != ConnectorVirtual && v.Declared.Revision < a.fence:
		return hold(planner.RefusedNotLeader, "This node has not seen yet what the leader before did")
	case c == ConnectorVirtual:
		return a.executor(now, v, cfg.ActionTimeout)
	}
	if left := cfg.CoolDown - now.Sub(a.handAt); !a.handAt.IsZero() && left > 0 {
		return hold(planner.RefusedByHand, "%s: that is the base, and nothing is changed for %s", a.hand, left.Round(time.Second))
	}
	if who := ordered(v); who != "" {
		return hold(planner.RefusedByHand, "%s", who)
	}
	if a.pods != nil {
		return a.pods.hold(now, cfg.CoolDown)
	}
	return planner.Hold{}
}

// newest returns the newest revision of the keys that planners write.
func (v Virtual) newest() (rev store.Revision) {
	for _, name := range virtualKeys {
		rev = max(rev, v[name].revision)
	}
	return rev
}

// executor returns whether the one who carries decisions out is still at the last one.
func (a *orders) executor(now time.Time, v View, timeout time.Duration) planner.Hold {
	id := v.Virtual.decision()
	if v.Virtual.scaled() >= id {
		a.waiting = nil
		return planner.Hold{}
	}
	since, known := a.waiting[id]
	if !known {
		since = now
		a.waiting = map[int64]time.Time{id: now}
	}
	if now.Sub(since) > timeout { // nobody is waited for for ever
		return planner.Hold{}
	}
	return planner.Hold{Refusal: planner.RefusedUnfinished, Why: fmt.Sprintf("Decision %d has not been carried out for %s: %s is %d", id,
		now.Sub(since).Round(time.Second), cluster.VirtualPlannerKey(a.cfg.Namespace, cluster.VirtualScaled), v.Virtual.scaled())}
}

// settle finds out what became of the newest change.
func (a *orders) settle(now time.Time, v View, o planner.Observation, late []string) {
	if len(a.changes) == 0 || o.Stale != "" || v.Declared == nil {
		return
	}
	c := &a.changes[len(a.changes)-1]
	if c.Result != planner.ResultUnderWay && c.Result != planner.ResultUnknown && (c.Result != planner.ResultLate || len(late) > 0) {
		return
	}
	end := func(r planner.Result, detail string) {
		if c.Result != r {
			c.Result, c.Ended, a.untold = r, now, true
		}
		if detail != "" && c.Cause != "" { // else the detail is all that is known of it
			c.Detail = detail
		}
	}
	at, there := c.Generation, a.touched
	if c.DecisionID != nil {
		at, there = *c.DecisionID, v.Virtual.decision()
	}
	carried := len(o.Pending) == 0
	if c.DecisionID != nil {
		carried = v.Virtual.scaled() >= at
	}
	switch {
	case there < at:
		if c.Result == planner.ResultUnknown && now.Sub(c.Time) > 2*writeWithin {
			end(planner.ResultFailed, "")
		}
	case there > at:
		by := v.Declared.UpdatedBy
		if c.DecisionID != nil {
			by = "another planner"
		}
		end(planner.ResultOvertaken, "by "+by)
	case len(late) > 0:
		end(planner.ResultLate, strings.Join(late, ", ")+" did not get ready in time")
	case carried:
		end(planner.ResultDone, "")
	case c.Result == planner.ResultUnknown:
		c.Result, a.untold = planner.ResultUnderWay, true
	}
}
