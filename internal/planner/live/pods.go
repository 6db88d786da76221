package live

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/planner"
)

// Targets are the objects whose pods the workers of each role run in, one worker in a pod. A role without one
// has pods that the planner does not count. Both roles may have the same.
type Targets struct{ Prefill, Decode cluster.ScaleTarget }

// of returns the target of a role.
func (t Targets) of(role cluster.Role) cluster.ScaleTarget {
	if role == cluster.RolePrefill {
		return t.Prefill
	}
	return t.Decode
}

// pods has Kubernetes run the pods that the workers of a topology need: no more, and no fewer. It compares at
// each step, so that it does not matter who changed the topology, or whether a write before was lost.
type pods struct {
	cfg     Config
	leads   func(context.Context) error
	client  *kube.Client
	manager string // of the field: another one for each leader, which is what fences those before off
	objects []*scaled
	unread  string    // why an object could not be read; empty if all were
	handAt  time.Time // when somebody else scaled an object
	hand    string    // what they did
	waits   string    // what the next step waits for
}

// scaled is an object that the leader has claimed.
type scaled struct {
	target   cluster.ScaleTarget
	resource kube.Resource
	roles    []cluster.Role
	scale    kube.Scale
	ordered  []int     // the number that was ordered or found last; with a second one, it is not known whether that was ordered
	surplus  time.Time // since when it has more pods than it shall have; zero: it has not
}

// wants returns how many pods the workers of a plan need.
func (o *scaled) wants(p planner.Plan) (n int) {
	for _, role := range o.roles {
		n += p.Workers(role)
	}
	return n
}

// claimPods finds the objects and becomes the manager of their numbers, which stay. Whoever read them before
// that can change them no more.
func claimPods(ctx context.Context, cfg Config, client *kube.Client, t Targets, leads func(context.Context) error) (*pods, error) {
	p := &pods{cfg: cfg, leads: leads, client: client, manager: "dynctl-planner-" + strings.ToLower(rand.Text())}
	for _, role := range planner.Roles {
		target := t.of(role)
		if i := slices.IndexFunc(p.objects, func(o *scaled) bool { return o.target == target }); i >= 0 {
			p.objects[i].roles = append(p.objects[i].roles, role)
			continue
		}
		if target == (cluster.ScaleTarget{}) {
			continue
		}
		o := &scaled{target: target, roles: []cluster.Role{role}}
		if err := p.claim(ctx, o); err != nil {
			return nil, fmt.Errorf("%s: %w", target, err)
		}
		p.objects = append(p.objects, o)
	}
	return p, nil
}

func (p *pods) claim(ctx context.Context, o *scaled) (err error) {
	if o.resource, err = p.client.Scalable(ctx, o.target); err != nil {
		return err
	}
	if o.scale, err = p.client.Scale(ctx, o.resource, o.target.Name); err != nil {
		return err
	}
	if err := p.leads(ctx); err != nil {
		return err
	}
	o.ordered = []int{o.scale.Spec.Replicas}
	o.scale, err = p.client.ClaimScale(ctx, o.resource, o.scale, p.manager)
	return err
}

// look reads the objects.
func (p *pods) look(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	p.unread = ""
	for _, o := range p.objects {
		s, err := p.client.Scale(ctx, o.resource, o.target.Name)
		if err != nil {
			p.unread = fmt.Sprintf("%s cannot be read: %v", o.target, err)
			return
		}
		o.scale = s
		n, last := s.Spec.Replicas, o.ordered[len(o.ordered)-1]
		if !slices.Contains(o.ordered, n) {
			p.handAt, p.hand = now, fmt.Sprintf("Somebody else scaled %s from %d to %d", o.target, o.ordered[0], n)
			last = n
		}
		if n == last {
			o.ordered = []int{n}
		}
	}
}

// hold returns why nothing may be changed now.
func (p *pods) hold(now time.Time, coolDown time.Duration) planner.Hold {
	if p.unread != "" {
		return planner.Hold{Refusal: planner.RefusedStaleData, Why: p.unread}
	}
	if left := p.left(now, coolDown); left > 0 {
		return planner.Hold{Refusal: planner.RefusedByHand, Why: fmt.Sprintf("%s: the pods are left so for %s, and then follow the workers", p.hand, left.Round(time.Second))}
	}
	return planner.Hold{}
}

// left returns for how long the pods stay as somebody else wanted them.
func (p *pods) left(now time.Time, coolDown time.Duration) time.Duration {
	if p.handAt.IsZero() {
		return 0
	}
	return coolDown - now.Sub(p.handAt)
}

// pending returns the objects whose pods have to go, and what all of it waits for.
func (p *pods) pending(now time.Time, plan planner.Plan) (out []planner.Pending, waits string) {
	for _, o := range p.objects {
		if o.scale.Pods() <= o.wants(plan) {
			o.surplus = time.Time{}
			continue
		}
		if o.surplus.IsZero() {
			o.surplus = now
		}
		out = append(out, planner.Pending{Kind: planner.ActionDrain, Role: o.roles[0], Since: o.surplus})
	}
	return out, p.waits
}

// follow orders the pods that the workers of a plan need. With those that still end, there are never more than
// the devices of the budget. Pods go when no worker is on them.
func (p *pods) follow(ctx context.Context, v View, plan planner.Plan, devices int) error {
	free := devices
	for _, o := range p.objects {
		free -= o.scale.Pods()
	}
	var waits []string
	defer func() { p.waits = strings.Join(waits, ". ") }()
	for _, o := range p.objects {
		want, have, there := o.wants(plan), o.scale.Spec.Replicas, o.scale.Pods()
		n := want
		if want > have {
			n = max(min(want, there+free), have)
			free -= max(n, o.scale.Status.Replicas) - there
		} else if busy := o.busy(v, want); want < have && busy != "" {
			n = have
			waits = append(waits, fmt.Sprintf("%s keeps its pods until %s", o.target, busy))
		}
		if n < want {
			waits = append(waits, fmt.Sprintf("%s has %d pods and should have %d: planner.devices allows %d together, with those that still end", o.target, n, want, devices))
		}
		if n != have {
			if err := p.order(ctx, o, n); err != nil {
				return err
			}
		}
		if missing := o.missing(v, min(n, want)); missing != "" {
			waits = append(waits, missing)
		}
	}
	return nil
}

// order sets the number of pods of an object that is still as it was read.
func (p *pods) order(ctx context.Context, o *scaled, n int) error {
	if err := p.leads(ctx); err != nil {
		return err
	}
	from := o.scale.Spec.Replicas
	o.ordered = []int{from, n}
	s, err := p.client.SetScale(ctx, o.resource, o.scale, p.manager, n)
	if err != nil {
		if kube.IsRefused(err) { // it was not done
			o.ordered = []int{from}
		}
		return fmt.Errorf("scale %s to %d pods: %w", o.target, n, err)
	}
	o.scale, o.ordered = s, []int{n}
	p.cfg.Log.Info("the planner scales pods", "object", o.target.String(), "from", from, "to", n)
	return nil
}

// missing names pods that are ordered and are no nodes yet, where it is known which these are.
func (o *scaled) missing(v View, ordered int) string {
	if !o.numbered() {
		if have := o.scale.Status.Replicas; have < ordered {
			return fmt.Sprintf("%s has %d pods of %d", o.target, have, ordered)
		}
		return ""
	}
	up := map[int]bool{}
	for _, n := range v.Nodes {
		if i, ok := kube.Ordinal(o.target, n.Name); ok {
			up[i] = true
		}
	}
	var names []string
	for i := range ordered {
		if !up[i] {
			names = append(names, fmt.Sprintf("%s-%d", o.target.Name, i))
		}
	}
	switch rest := len(names) - mostNamed; {
	case len(names) == 0:
		return ""
	case rest > 0:
		return fmt.Sprintf("The pods %s and %d others of %s are not up", strings.Join(names[:mostNamed], ", "), rest, o.target)
	}
	return fmt.Sprintf("The pods %s of %s are not up", strings.Join(names, ", "), o.target)
}

// mostNamed is how many pods are named at once.
const mostNamed = 4

// numbered reports whether it is known which pods go first: those of a StatefulSet with the highest numbers.
func (o *scaled) numbered() bool {
	_, ok := kube.Ordinal(o.target, o.target.Name+"-0")
	return ok
}

// goes reports whether a node is in a pod that goes when the object has so many.
func (o *scaled) goes(n cluster.Node, pods int) bool {
	i, ok := kube.Ordinal(o.target, n.Name)
	return ok && i >= pods
}

// busy returns what must happen before the object can have so many pods; empty if nothing must. Where it is not
// known which pods go, it is enough that they are as many as the workers: a pod that ends hands over what its
// worker has.
func (o *scaled) busy(v View, pods int) string {
	for _, id := range sortedNames(v.Nodes) {
		if n := v.Nodes[id]; o.goes(n, pods) && v.Cordons[id].Node == "" {
			return n.Name + " takes no more workers"
		}
	}
	workers := 0
	for _, name := range sortedNames(v.Assignments) {
		switch a := v.Assignments[name]; {
		case a.Node == "":
		case o.goes(v.Nodes[a.Node], pods):
			return fmt.Sprintf("%s has left %s", name, v.Nodes[a.Node].Name)
		case slices.Contains(o.roles, a.Role):
			workers++
		}
	}
	if !o.numbered() && workers > pods {
		return fmt.Sprintf("%d of %d workers are left", pods, workers)
	}
	return ""
}
