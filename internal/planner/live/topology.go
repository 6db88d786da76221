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

// Declared is a topology as it is stored, and as the workers of one pool see it.
type Declared struct {
	cluster.Topology // of the pool
	Revision         store.Revision
	raw              []byte
	pool             string
	whole            cluster.Topology
}

func decodeDeclared(kv store.KV) (Declared, error) {
	t, err := store.DecodeJSON[cluster.Topology](kv)
	return Declared{Topology: t.In(""), Revision: kv.ModRevision, raw: kv.Value, whole: t}, err
}

// in returns the topology as the workers of a pool see it.
func (d *Declared) in(pool string) *Declared {
	if d == nil {
		return nil
	}
	view := *d
	view.Topology, view.pool = d.whole.In(pool), pool
	return &view
}

// with returns the topology with a plan's workers in the pool.
func (d *Declared) with(plan planner.Plan) cluster.Topology {
	next, view := d.whole, d.Topology
	view.Prefill, view.Decode = plan.Prefill, plan.Decode
	next.Put(d.pool, view)
	return next
}

// started returns the workers of all pools that run on nodes, as a plan: all but attached servers.
func started(t cluster.Topology) (p planner.Plan) {
	for _, pool := range t.PoolNames() {
		view := t.In(pool)
		for _, role := range planner.Roles {
			if _, e := view.Specs(role); !e.Server.Attached() {
				p = p.With(role, p.Workers(role)+view.Count(role))
			}
		}
	}
	return p
}

// plan returns what is declared of the pool as a plan.
func (d *Declared) plan(maxLocal int) planner.Plan {
	return planner.Plan{Prefill: d.Prefill, Decode: d.Decode, MaxLocalPrefill: maxLocal}
}

// byPlanner is how planners sign topologies, followed by the name of their node.
const byPlanner = "planner@"

// signature begins the reason of a change of a pool.
func signature(pool string) string {
	if pool == "" {
		return "planner: "
	}
	return "planner of pool " + pool + ": "
}

// reasonLength bounds the reason that is kept with a topology, in bytes: it is ASCII.
const reasonLength = 160

// amended returns the topology with a plan's workers in the pool, in the bytes that it has. What the planner does
// not change stays as it is, fields that this release does not know too.
func (d *Declared) amended(plan planner.Plan, node, reason string, now time.Time) ([]byte, error) {
	if err := d.with(plan).Validate(); err != nil {
		return nil, err
	}
	numbers := []field{{"prefill", plan.Prefill}, {"decode", plan.Decode}}
	if d.pool != "" {
		pools, err := within(d.raw, "pools", func(pools []byte) ([]byte, error) {
			return within(pools, d.pool, func(pool []byte) ([]byte, error) { return amend(pool, numbers) })
		})
		if err != nil {
			return nil, err
		}
		return amend(pools, d.signed(node, reason, now))
	}
	return amend(d.raw, append(numbers, d.signed(node, reason, now)...))
}

// signed are the fields of the record of a change.
func (d *Declared) signed(node, reason string, now time.Time) []field {
	return []field{
		{"generation", d.Generation + 1}, {"updated_at", now}, {"updated_by", byPlanner + node},
		{"reason", reason[:min(len(reason), reasonLength)]},
	}
}

// within returns a JSON object in which a function has changed the object in one field.
func within(object []byte, name string, change func([]byte) ([]byte, error)) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		return nil, err
	}
	changed, err := change(fields[name])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return amend(object, []field{{name, json.RawMessage(changed)}})
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
	var err error
	for _, f := range fields {
		text, verbatim := f.value.(json.RawMessage)
		if !verbatim { // Marshal would write it in another form
			if text, err = json.Marshal(f.value); err != nil {
				return nil, err
			}
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

// declare writes a plan of a pool into the topology that was observed, or fails with [store.ErrConflict]. It returns
// what it wrote: nobody wrote in between, so that it stands for an observation.
func (a *actor) declare(ctx context.Context, d *Declared, plan planner.Plan, reason string) (*Declared, error) {
	next, err := d.amended(plan, a.cfg.Node, reason, time.Now())
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(d.UpdatedBy, byPlanner) {
		if err := a.remember(ctx, d.whole); err != nil {
			return nil, err
		}
	}
	if err := a.leads(ctx); err != nil {
		return nil, err
	}
	key := cluster.TopologyKey(a.cfg.Namespace)
	rev, err := a.cfg.Store.CompareAndSwap(ctx, key, d.Revision, next)
	if err != nil {
		return nil, err
	}
	written, err := decodeDeclared(store.KV{Key: key, Value: next, ModRevision: rev})
	return &written, err
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

// staying returns how many workers of a role the assignments have: all but those that leave and successors,
// which stand for the workers that they replace.
func staying(v View, role cluster.Role) (n int) {
	for _, a := range v.Assignments {
		if v.own(a) && a.Role == role && a.Desire != cluster.DesireRemove && a.Replaces == "" {
			n++
		}
	}
	return n
}

// ordered returns who else has given workers orders that are not carried out, or stand; empty if nobody has.
func ordered(v View) string {
	for _, name := range sortedNames(v.Assignments) {
		a := v.Assignments[name]
		if !v.own(a) {
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
