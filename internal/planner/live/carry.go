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
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/store"
)

// pointDeclared: the topology is declared; the rest, and what is told of it, is not.
var pointDeclared = failpoint.New("planner.declared")

// frozen are the refusals with which a decision says nothing of what must be given up either.
var frozen = []planner.Refusal{
	planner.RefusedOff, planner.RefusedNotLeader, planner.RefusedInsufficientData, planner.RefusedStaleData, planner.RefusedNodeLost,
	planner.RefusedUnfinished, planner.RefusedByHand, planner.RefusedAttached, planner.RefusedConnector,
}

// wanted returns the plan that a decision asks for, and what for; the plan that is declared if for nothing. Plans have
// the workers beside those of the pool, too.
func wanted(v View, d planner.Decision, cfg planner.Config, beside planner.Plan) (planner.Plan, planner.Cause) {
	if len(d.Late) == 0 || slices.Contains(frozen, d.Refusal) || d.Cause == planner.CauseBudget {
		return d.Proposal, d.Cause
	}
	plan, declared := d.Current, plus(v.Declared.plan(v.MaxLocalPrefill), beside)
	for _, role := range planner.Roles { // who must be there is tried for ever
		least := cfg.Role(role).Min
		if role == cluster.RoleDecode {
			least = max(least, 1)
		}
		plan = plan.With(role, max(plan.Workers(role), min(least, declared.Workers(role))))
	}
	if plan == declared {
		return d.Proposal, d.Cause
	}
	return plan, planner.CauseGiveUp
}

// act carries a decision out, with workers beside those of the pool in its plans. It returns what is declared then.
func (a *orders) act(ctx context.Context, now time.Time, v View, d planner.Decision, beside planner.Plan, cfg planner.Config, c Connector) *Declared {
	declared := v.Declared
	if declared == nil {
		return nil
	}
	plan, cause := wanted(v, d, cfg, beside)
	if cause == "" || a.claimed != c {
		return declared
	}
	from := plus(declared.plan(v.MaxLocalPrefill), beside)
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
	written, err := a.write(ctx, now, v, minus(plan, beside), &change, cfg.StaleAfter)
	if written != nil {
		declared = written
	}
	switch {
	case err == nil:
		a.cfg.Log.Info("the planner changes the workers", "pool", a.pool, "from", from.String(), "to", plan.String(), "cause", cause)
	case errors.Is(err, store.ErrConflict):
		change.Result, change.Ended, change.Detail = planner.ResultConflict, now, "somebody changed the workers at that moment"
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		change.Result, change.Detail = planner.ResultUnknown, err.Error()
	default:
		change.Result, change.Ended, change.Detail = planner.ResultFailed, now, err.Error()
	}
	if err != nil {
		a.cfg.Log.Warn("the planner could not change the workers", "pool", a.pool, "to", plan.String(), "error", err)
	}
	a.note(change)
	return declared
}

// write orders a change: the workers of the pool, then the threshold. It returns the topology, if it wrote that.
func (a *orders) write(ctx context.Context, now time.Time, v View, plan planner.Plan, c *planner.Change, stale time.Duration) (written *Declared, err error) {
	if age := time.Since(now); age > stale { // the process stood still
		return nil, fmt.Errorf("the observation has become %s old", age.Round(time.Second))
	}
	if a.claimed == ConnectorVirtual {
		id, err := a.tell(ctx, v.Virtual, plan)
		c.DecisionID = &id
		if err != nil {
			return nil, err
		}
	} else {
		if a.pods != nil { // before the controller chooses who leaves
			if err := a.cordon(ctx, v, a.pods.objects, started(v.Declared.with(plan))); err != nil {
				return nil, err
			}
		}
		c.Generation = v.Declared.Generation + 1
		if written, err = a.declare(ctx, v.Declared, plan, signature(a.pool)+c.Words()); err != nil {
			return written, err
		}
		a.seen, a.touched, a.whole = c.Generation, c.Generation, written.whole
	}
	pointDeclared.Hit()
	if plan.MaxLocalPrefill == v.MaxLocalPrefill {
		return written, nil
	}
	// The next leader decides anew where this is lost.
	_, err = a.cfg.Store.CompareAndSwap(ctx, cluster.SettingKey(a.cfg.Namespace, settingMaxLocal), v.MaxLocalRevision, fmt.Append(nil, plan.MaxLocalPrefill))
	return written, err
}

// settingMaxLocal is the setting that plans have.
const settingMaxLocal = "disagg.max_local_prefill_tokens"
