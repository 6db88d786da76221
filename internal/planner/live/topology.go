package live

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/store"
)

// Declared is a topology as it is stored.
type Declared struct {
	cluster.Topology
	Revision store.Revision
	raw      []byte
}

func decodeDeclared(kv store.KV) (Declared, error) {
	t, err := store.DecodeJSON[cluster.Topology](kv)
	return Declared{t, kv.ModRevision, kv.Value}, err
}

// plan returns what is declared as a plan.
func (d *Declared) plan(maxLocal int) planner.Plan {
	return planner.Plan{Prefill: d.Prefill, Decode: d.Decode, MaxLocalPrefill: maxLocal}
}

// byPlanner is how planners sign topologies, followed by the name of their node.
const byPlanner = "planner@"

// reasonLength bounds the reason that is kept with a topology, in bytes: it is ASCII.
const reasonLength = 160

// amended returns the topology with a plan's workers, in the bytes that it has. What the planner does not
// change stays as it is, fields that this release does not know too.
func (d *Declared) amended(plan planner.Plan, node, reason string, now time.Time) ([]byte, error) {
	next := d.Topology
	next.Prefill, next.Decode = plan.Prefill, plan.Decode
	if err := next.Validate(); err != nil {
		return nil, err
	}
	return amend(d.raw, []field{
		{"prefill", plan.Prefill}, {"decode", plan.Decode}, {"generation", d.Generation + 1},
		{"updated_at", now}, {"updated_by", byPlanner + node}, {"reason", reason[:min(len(reason), reasonLength)]},
	})
}

// field is a field of a JSON object with its value.
type field struct {
	name  string
	value any
}

// amend returns a JSON object with other values of fields. All other bytes stay.
func amend(object []byte, fields []field) ([]byte, error) {
	type span struct {
		from, to int64
		text     []byte
	}
	at := map[string]span{}
	dec := json.NewDecoder(bytes.NewReader(object))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(errors.New("no JSON object"), err)
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		text, _ := name.(string) // names are texts
		at[text] = span{from: dec.InputOffset() - int64(len(value)), to: dec.InputOffset()}
	}
	empty := len(at) == 0
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	end := dec.InputOffset() - 1 // before the brace
	var edits []span
	for _, f := range fields {
		text, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		s, there := at[f.name]
		if !there {
			text = fmt.Appendf(nil, ",%q:%s", f.name, text)
			if empty {
				text, empty = text[1:], false
			}
			s = span{from: end, to: end}
		}
		s.text = text
		edits = append(edits, s)
	}
	slices.SortStableFunc(edits, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var out []byte
	last := int64(0)
	for _, e := range edits {
		out = append(append(out, object[last:e.from]...), e.text...)
		last = e.to
	}
	return append(out, object[last:]...), nil
}

// claimTopology writes the topology again as it is. Whoever observed it before that can write it no more: its
// revision is another one.
func (a *actor) claimTopology(ctx context.Context) (store.Revision, error) {
	key := cluster.TopologyKey(a.cfg.Namespace)
	kv, err := a.cfg.Store.Get(ctx, key)
	if err != nil {
		if errors.Is(err, store.ErrNotFound) {
			err = errNotDeclared
		}
		return 0, err
	}
	if err := a.leads(ctx); err != nil {
		return 0, err
	}
	return a.cfg.Store.CompareAndSwap(ctx, key, kv.ModRevision, kv.Value)
}

var (
	errNotDeclared = errors.New("nothing was ever declared")
	errDeposed     = errors.New("another node leads")
)

// leads returns nil if this node leads. What was read before the call is then of the time of this leader.
func (a *actor) leads(ctx context.Context) error {
	leads, err := a.cfg.Leads(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("ask who leads: %w", err)
	case !leads:
		return errDeposed
	}
	return nil
}

// declare writes a plan into the topology that was observed, or fails with [store.ErrConflict].
func (a *actor) declare(ctx context.Context, d *Declared, plan planner.Plan, reason string) error {
	next, err := d.amended(plan, a.cfg.Node, reason, time.Now())
	if err != nil {
		return err
	}
	if !strings.HasPrefix(d.UpdatedBy, byPlanner) {
		if err := a.remember(ctx, d.Topology); err != nil {
			return err
		}
	}
	if err := a.leads(ctx); err != nil {
		return err
	}
	_, err = a.cfg.Store.CompareAndSwap(ctx, cluster.TopologyKey(a.cfg.Namespace), d.Revision, next)
	return err
}

// remember keeps a topology that a person declared, with the settings of now, for dynctl rollback. Those of
// planners are not kept: there would soon be no others.
func (a *actor) remember(ctx context.Context, t cluster.Topology) error {
	prefix := cluster.SettingPrefix(a.cfg.Namespace)
	kvs, _, err := a.cfg.Store.List(ctx, prefix)
	if err != nil {
		return err
	}
	r := cluster.Revision{Topology: t, Settings: map[string]json.RawMessage{}}
	for _, kv := range kvs {
		r.Settings[strings.TrimPrefix(kv.Key, prefix)] = kv.Value
	}
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = a.cfg.Store.Create(ctx, cluster.HistoryKey(a.cfg.Namespace, t.Generation), body)
	if errors.Is(err, store.ErrExists) {
		return nil
	}
	return err
}

// planned reports whether a worker is of those that the planner counts: prefill and decode workers of the
// topology's main pool.
func planned(a cluster.Assignment) bool { return a.Pool == "" && a.Role.HoldsKV() }

// staying returns how many workers of a role the assignments have: all but those that leave and successors,
// which stand for the workers that they replace.
func staying(v View, role cluster.Role) (n int) {
	for _, a := range v.Assignments {
		if planned(a) && a.Role == role && a.Desire != cluster.DesireRemove && a.Replaces == "" {
			n++
		}
	}
	return n
}

// ordered returns who else has given workers orders that are not carried out, or stand; empty if nobody has.
func ordered(v View) string {
	for _, name := range sortedNames(v.Assignments) {
		a := v.Assignments[name]
		if !planned(a) {
			continue
		}
		model, engine := v.Declared.Specs(a.Role)
		switch {
		case a.Desire == cluster.DesireDrain:
			return name + " is drained: dynctl resume, or remove it by dynctl scale"
		case a.Replaces != "" && strings.HasPrefix(v.Cordons[v.Assignments[a.Replaces].Node].By, byPlanner): // it moves off a pod that goes
		case a.Replace, a.Replaces != "":
			return name + " is being replaced"
		case a.Desire == cluster.DesireRun && a.Restarts != v.Declared.Restarts:
			return name + " has not been restarted yet, as all workers are"
		case a.Desire == cluster.DesireRun && (a.Model != model || a.Engine != engine):
			return name + " has not the declared model or engine yet"
		}
	}
	return ""
}
