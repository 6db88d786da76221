package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// nodePrefix marks the name of a node where workers are named, too.
const nodePrefix = "node/"

// nodeDrainer takes all workers off one node.
type nodeDrainer struct {
	inv    *invocation
	c      *client.Cluster
	watch  *client.Watch
	name   string
	limit  time.Duration // 0: now
	force  bool
	noWait bool
	mode   string

	node     cluster.Node
	ordered  time.Time
	deadline time.Time
	left     []string                  // workers that have left, in the order in which they did
	known    map[string]cluster.Worker // that were or are on the node
	waiting  []cluster.Worker          // that are still there
	homeless []string                  // why successors have no place
}

// run gives the order and waits until nothing of the node's workers is left.
func (d *nodeDrainer) run(ctx context.Context) (drainResult, error) {
	action := "cannot drain " + nodePrefix + d.name
	v := d.watch.View()
	node, err := d.inv.findNode(action, d.name, v)
	if err != nil {
		return drainResult{Node: d.name}, err
	}
	d.node, d.known, d.ordered = node, map[string]cluster.Worker{}, d.inv.env.Now()
	if d.limit > 0 {
		d.deadline = d.ordered.Add(d.limit)
	}
	if !slices.ContainsFunc(v.Nodes, func(n cluster.Node) bool { _, cordoned := v.Cordons[n.ID]; return n.ID != node.ID && !cordoned }) {
		d.inv.note("no other node takes workers: those of %s stop, and requests wait until a node is resumed", d.name)
	}
	if err := d.c.Cordon(ctx, node.ID, d.deadline, d.force); err != nil {
		return drainResult{Node: d.name}, &failure{action: action, err: err}
	}
	if d.noWait {
		return drainResult{Node: d.name, sentence: d.name + " drains."}, nil
	}
	return d.wait(ctx)
}

func (d *nodeDrainer) wait(ctx context.Context) (drainResult, error) {
	show := d.inv.progress(d.mode)
	defer show.Close()
	led := newLedger(d.ordered)
	err := d.watch.Until(ctx, lookEvery, func(v client.View) (bool, error) {
		now := d.inv.env.Now()
		over, err := d.judge(v, now)
		show.Show(d.screen(led, v, now, over))
		return over, err
	})
	if err != nil && ctx.Err() != nil {
		return drainResult{}, &interrupted{
			text: fmt.Sprintf("stopped watching: %s goes on draining", d.name), tries: []string{"dynctl resume " + nodePrefix + d.name + "   to take it back"}, err: err,
		}
	}
	if err != nil {
		var f *failure
		if !errors.As(err, &f) {
			err = &failure{action: "cannot drain " + nodePrefix + d.name, err: err}
		}
		return d.result(false, ""), err
	}
	return d.result(true, d.sentence()), nil
}

// judge looks at what is left on the node. Workers count as gone when their agent has
// said that they stopped, which the controller waits for.
func (d *nodeDrainer) judge(v client.View, now time.Time) (over bool, err error) {
	d.waiting, d.homeless = nil, nil
	_, cordoned := v.Cordons[d.node.ID]
	lives := slices.ContainsFunc(v.Nodes, func(n cluster.Node) bool { return n.ID == d.node.ID })
	for _, w := range v.Workers() {
		a, assigned := v.Assignments[w.Name]
		here := assigned && a.Node == d.node.ID || w.Node == d.node.ID
		parked := a.Desire == cluster.DesireDrain && safe(w.WorkerStatus)
		if here && !parked && !safe(w.WorkerStatus) {
			d.waiting = append(d.waiting, w)
			d.known[w.Name] = w
		}
		if assigned && a.Desire == cluster.DesireRun && a.Node == "" && a.Unplaced != "" && !slices.Contains(d.homeless, a.Unplaced) {
			d.homeless = append(d.homeless, a.Unplaced)
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(d.known), cluster.CompareNames) {
		gone := !slices.ContainsFunc(d.waiting, func(w cluster.Worker) bool { return w.Name == name })
		if gone && !slices.Contains(d.left, name) {
			d.left = append(d.left, name)
		}
	}
	action := d.name + " did not drain"
	switch {
	case !lives:
		return false, &failure{action: action, err: errors.New("it is gone, and what it ran with it"), tries: []string{"dynctl ps --nodes"}}
	case cordoned && len(d.waiting) == 0:
		return true, nil
	case !cordoned && now.Sub(d.ordered) > forceLimit/10:
		return false, &failure{action: action, err: errors.New("somebody resumed it")}
	case !d.deadline.IsZero() && now.After(d.deadline.Add(lateness)), d.deadline.IsZero() && now.Sub(d.ordered) > forceLimit:
		return false, d.overdue(now)
	}
	return false, nil
}

func (d *nodeDrainer) overdue(now time.Time) error {
	f := &failure{
		action: fmt.Sprintf("%s did not drain in %s", d.name, duration(now.Sub(d.ordered))), code: exitDeadline,
		err:   fmt.Errorf("%s left", plural(len(d.waiting), "worker")),
		facts: []string{"it goes on draining and takes no workers"},
		tries: []string{
			"dynctl drain " + nodePrefix + d.name + " --deadline 10m   to wait on",
			"dynctl resume " + nodePrefix + d.name + "   to take it back",
			"dynctl drain " + nodePrefix + d.name + " --force --deadline 0 --yes   to cut off what runs; other workers continue it",
		},
	}
	for _, w := range d.waiting {
		text := "  " + w.Name + "  " + stateText(w)
		if w.Drain != nil && w.State == cluster.StateDraining {
			text += "  " + drainText(w.Drain)
		}
		if w.ReplacedBy != "" && w.Desire == cluster.DesireRun {
			text += "  waits for " + w.ReplacedBy
		}
		f.facts = append(f.facts, text)
	}
	return f
}

func (d *nodeDrainer) screen(led *ledger, v client.View, now time.Time, over bool) progress.Screen {
	s := progress.Screen{
		Operation: "drain", Subject: d.name, Title: d.name + "  node  draining",
		Footer: fmt.Sprintf("ctrl-c stops watching only.  undo: dynctl resume %s%s", nodePrefix, d.name),
	}
	switch {
	case over:
		s.Title, s.Footer = d.name+"  node  drained", ""
	case !d.deadline.IsZero():
		s.Title += "   deadline in " + clockLeft(d.deadline.Sub(now))
	}
	rows := map[string]progress.Row{}
	for name, w := range d.known {
		rows[name] = led.leaving(w, v.Nodes, slices.Contains(d.left, name), now)
		if w.Desire == cluster.DesireRun && !slices.Contains(d.left, name) {
			r := rows[name]
			r.Word, r.Detail, r.Line = "serving", "until its successor serves", name+" "+string(w.Role)+" serving"
			if s, ok := v.Successor(name); ok {
				r.Detail = "until " + s.Name + " serves, which is " + stateText(s)
				r.Line += ", " + s.Name + " " + string(s.State)
			}
			r.Cells = []string{name, string(w.Role), deviceText(v.Nodes, w.Node, w.Device), r.Word}
			rows[name] = r
		}
	}
	for _, name := range led.order {
		if r, ok := rows[name]; ok {
			s.Rows = append(s.Rows, r)
		}
	}
	return s
}

func (d *nodeDrainer) result(done bool, sentence string) drainResult {
	took := d.inv.env.Now().Sub(d.ordered).Milliseconds()
	r := drainResult{Node: d.name, State: cluster.StateDraining, Open: []cluster.OpenSequence{}, DurationMS: &took, Workers: d.left, sentence: sentence}
	for _, w := range d.waiting {
		if w.Drain != nil {
			r.Open = append(r.Open, w.Drain.Open...)
		}
	}
	if done {
		r.State, r.Safe = cluster.StateDrained, len(d.keeps()) == 0
	}
	return r
}

// keeps are the stores of the cluster that the node hosts.
func (d *nodeDrainer) keeps() (out []string) {
	if d.node.EmbeddedEtcd {
		out = append(out, "etcd")
	}
	if d.node.EmbeddedNATS {
		out = append(out, "NATS")
	}
	return out
}

func (d *nodeDrainer) sentence() string {
	text := fmt.Sprintf("%s drained in %s: %s left.", d.name, duration(d.inv.env.Now().Sub(d.ordered)), plural(len(d.left), "worker"))
	if len(d.homeless) > 0 {
		d.inv.note("workers wait for a place: %s", strings.Join(d.homeless, "; "))
	}
	if k := d.keeps(); len(k) > 0 {
		return text + " it hosts the cluster's " + strings.Join(k, " and ") + ": not safe to stop."
	}
	if d.node.FrontendURL != "" {
		d.inv.note("its frontend %s goes with it; a stop in order lets its requests end", d.node.FrontendURL)
	}
	return text + " safe to stop."
}

// findNode finds a node by its name, or its id.
func (inv *invocation) findNode(action, name string, v client.View) (cluster.Node, error) {
	var names []string
	for _, n := range v.Nodes {
		if n.Name == name || n.ID == name {
			return n, nil
		}
		names = append(names, n.Name)
	}
	f := &failure{action: action, err: fmt.Errorf("no such node in cluster %s", inv.cfg.Cluster), tries: []string{"dynctl ps --nodes"}}
	if len(names) > 0 {
		f.facts = []string{"live nodes: " + strings.Join(names, ", ")}
	}
	return cluster.Node{}, f
}

// completeDrainable completes workers and nodes.
func (f *factory) completeDrainable(cmd *cobra.Command, args []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
	out, directive := f.completeWorkers(cmd, args, text)
	f.lookAt(cmd, func(v client.View) {
		for _, n := range v.Nodes {
			if name := nodePrefix + n.Name; !slices.Contains(args, name) {
				out = append(out, cobra.CompletionWithDesc(name, "all workers of the node"))
			}
		}
	})
	return out, directive
}
