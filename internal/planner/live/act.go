package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/failpoint"
	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/store"
)

// Connector is what carries decisions out.
type Connector string

// Connectors.
const (
	// ConnectorTopology changes the topology, which the controller follows.
	ConnectorTopology Connector = "topology"
	// ConnectorVirtual writes the numbers to keys that a program follows, as Dynamo's virtual connector does.
	ConnectorVirtual Connector = "virtual"
	// ConnectorKubernetes changes the topology, and has Kubernetes run the pods that it needs.
	ConnectorKubernetes Connector = "kubernetes"
)

// rememberedChanges is how many changes are told.
const rememberedChanges = 10

var (
	pointDeclared = failpoint.New("planner.declared") // the topology is; the rest, and what is told of it, is not
)

// actor carries decisions out. A change is one compare-and-swap of what was observed. It is fenced: each leader
// first claims what it changes by writing it again as it is, and looks whether it leads between an observation
// and the write. A leader that was deposed either sees that then, or observed what was before the claim of the
// next one, and its write fails.
type actor struct {
	cfg Config

	claimed Connector // that this leader has claimed
	fence   store.Revision
	why     error // the claim failed, if it has
	client  *kube.Client
	targets Targets
	pods    *pods // claimed, with ConnectorKubernetes

	seen    int64 // generation of the newest topology; 0: none yet
	handAt  time.Time
	hand    string // what somebody else did then
	waiting map[int64]time.Time
	changes []planner.Change // oldest first
	untold  bool             // a change has another result than the store's
}

// recall takes over what the planners before did. One that died before it told of its last change has signed it.
func (a *actor) recall(ctx context.Context) error {
	r, _, err := store.GetJSON[planner.Report](ctx, a.cfg.Store, cluster.PlannerKey(a.cfg.Namespace))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	a.changes = r.Changes
	return nil
}

// claim fences the leaders before off, once for a connector and its objects.
func (a *actor) claim(ctx context.Context, c Connector, t Targets) {
	if a.claimed == c && (c != ConnectorKubernetes || a.targets == t) {
		return
	}
	a.claimed = ""
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	claim := a.claimTopology
	switch c {
	case ConnectorVirtual:
		claim = a.claimVirtual
	case ConnectorKubernetes:
		claim = func(ctx context.Context) (store.Revision, error) {
			if err := a.claimPods(ctx, t); err != nil {
				return 0, err
			}
			return a.claimTopology(ctx)
		}
	}
	rev, err := claim(ctx)
	if err != nil {
		if (a.why == nil || a.why.Error() != err.Error()) && !errors.Is(err, errDeposed) {
			a.cfg.Log.Warn("the planner cannot act, will try again", "connector", c, "error", err)
		}
		a.why = err
		return
	}
	a.claimed, a.fence, a.why = c, rev, nil
}

// see takes in what is declared now.
func (a *actor) see(now time.Time, d *Declared) {
	if d == nil || d.Generation == a.seen {
		return
	}
	first := a.seen == 0
	a.seen = d.Generation
	planned := strings.HasPrefix(d.UpdatedBy, byPlanner)
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

// note remembers a change.
func (a *actor) note(c planner.Change) {
	a.changes = append(a.changes, c)
	a.changes = slices.Clone(a.changes[max(0, len(a.changes)-rememberedChanges):])
	a.untold = true
}

// hold returns why nothing may be changed now.
func (a *actor) hold(now time.Time, v View, cfg planner.Config, c Connector) planner.Hold {
	hold := func(why planner.Refusal, format string, args ...any) planner.Hold {
		return planner.Hold{Refusal: why, Why: fmt.Sprintf(format, args...)}
	}
	if d := v.Declared; d != nil {
		for _, m := range v.Models {
			if m != d.Model.Name {
				return hold(planner.RefusedModels, "The frontends serve %s beside %s", m, d.Model.Name)
			}
		}
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
func (a *actor) executor(now time.Time, v View, timeout time.Duration) planner.Hold {
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
func (a *actor) settle(now time.Time, v View, o planner.Observation, late []string) {
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
	at, there := c.Generation, v.Declared.Generation
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

// frozen are the refusals with which a decision says nothing of what must be given up either.
var frozen = []planner.Refusal{
	planner.RefusedOff, planner.RefusedNotLeader, planner.RefusedInsufficientData, planner.RefusedStaleData, planner.RefusedNodeLost,
	planner.RefusedUnfinished, planner.RefusedByHand, planner.RefusedModels, planner.RefusedConnector,
}

// wanted returns the plan that a decision asks for, and what for; the plan that is declared if for nothing.
func wanted(v View, d planner.Decision, cfg planner.Config) (planner.Plan, planner.Cause) {
	if len(d.Late) == 0 || slices.Contains(frozen, d.Refusal) || d.Cause == planner.CauseBudget {
		return d.Proposal, d.Cause
	}
	plan := d.Current
	for _, role := range planner.Roles { // who must be there is tried for ever
		least := cfg.Role(role).Min
		if role == cluster.RoleDecode {
			least = max(least, 1)
		}
		plan = plan.With(role, max(plan.Workers(role), min(least, v.Declared.Count(role))))
	}
	if plan == v.Declared.plan(v.MaxLocalPrefill) {
		return d.Proposal, d.Cause
	}
	return plan, planner.CauseGiveUp
}

// act carries a decision out. It returns the plan that is declared then.
func (a *actor) act(ctx context.Context, now time.Time, v View, d planner.Decision, cfg planner.Config, c Connector) planner.Plan {
	if v.Declared == nil {
		return planner.Plan{}
	}
	plan, cause := wanted(v, d, cfg)
	declared := v.Declared.plan(v.MaxLocalPrefill)
	if cause == "" || a.claimed != c {
		return declared
	}
	from := declared
	if c == ConnectorVirtual {
		from = d.Current
		if told := (planner.Plan{Prefill: int(v.Virtual[cluster.VirtualPrefill].value), Decode: int(v.Virtual[cluster.VirtualDecode].value)}); v.Virtual.decision() >= 0 &&
			plan.Prefill == told.Prefill && plan.Decode == told.Decode && plan.MaxLocalPrefill == v.MaxLocalPrefill {
			return declared // who carries it out knows
		}
	}
	if plan == from {
		return declared
	}
	change := planner.Change{Time: now, Node: a.cfg.Node, From: from, To: plan, Actions: cfg.Actions(from, plan), Cause: cause, Result: planner.ResultUnderWay}
	if cause == planner.CauseGiveUp {
		change.Detail = strings.Join(d.Late, ", ") + " did not get ready in time"
	}
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	err := a.write(ctx, now, v, plan, &change, cfg.StaleAfter)
	switch {
	case err == nil:
		declared = plan
		a.cfg.Log.Info("the planner changes the workers", "from", from.String(), "to", plan.String(), "cause", cause)
	case errors.Is(err, store.ErrConflict):
		change.Result, change.Ended, change.Detail = planner.ResultConflict, now, "somebody changed the workers at that moment"
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		change.Result, change.Detail = planner.ResultUnknown, err.Error()
	default:
		change.Result, change.Ended, change.Detail = planner.ResultFailed, now, err.Error()
	}
	if err != nil {
		a.cfg.Log.Warn("the planner could not change the workers", "to", plan.String(), "error", err)
	}
	a.note(change)
	return declared
}

// write orders a change: the workers, then the threshold.
func (a *actor) write(ctx context.Context, now time.Time, v View, plan planner.Plan, c *planner.Change, stale time.Duration) error {
	if age := time.Since(now); age > stale { // the process stood still
		return fmt.Errorf("the observation has become %s old", age.Round(time.Second))
	}
	if a.claimed == ConnectorVirtual {
		id, err := a.tell(ctx, v.Virtual, plan)
		c.DecisionID = &id
		if err != nil {
			return err
		}
	} else {
		if a.pods != nil { // before the controller chooses who leaves
			if err := a.cordon(ctx, v, a.pods.objects, plan); err != nil {
				return err
			}
		}
		c.Generation = v.Declared.Generation + 1
		if err := a.declare(ctx, v.Declared, plan, "planner: "+c.Words()); err != nil {
			return err
		}
		a.seen = c.Generation
	}
	pointDeclared.Hit()
	if plan.MaxLocalPrefill == v.MaxLocalPrefill {
		return nil
	}
	// The next leader decides anew where this is lost.
	_, err := a.cfg.Store.CompareAndSwap(ctx, cluster.SettingKey(a.cfg.Namespace, settingMaxLocal), v.MaxLocalRevision, fmt.Append(nil, plan.MaxLocalPrefill))
	return err
}

// settingMaxLocal is the setting that plans have.
const settingMaxLocal = "disagg.max_local_prefill_tokens"
