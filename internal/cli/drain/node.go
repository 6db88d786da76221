package drain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/cli/settle"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// nodeDrainer takes all workers off one node.
type nodeDrainer struct {
	drainOrder

	node     cluster.Node
	left     []string                  // workers that have left, in the order in which they did
	known    map[string]cluster.Worker // that were or are on the node
	waiting  []cluster.Worker          // that are still there
	homeless []string                  // why successors have no place
}

// run gives the order and waits until nothing of the node's workers is left.
func (d *nodeDrainer) run(ctx context.Context) (Result, error) {
	action := "cannot drain " + fleet.NodePrefix + d.name
	v := d.watch.View()
	node, err := fleet.Node(d.session, action, d.name, v)
	if err != nil {
		return Result{Node: d.name}, err
	}
	d.node, d.known = node, map[string]cluster.Worker{}
	d.begin()
	if !slices.ContainsFunc(v.Nodes, func(n cluster.Node) bool { _, cordoned := v.Cordons[n.ID]; return n.ID != node.ID && !cordoned }) {
		d.session.Out.Note("no other node takes workers: those of %s stop, and requests wait until a node is resumed", d.name)
	}
	if err := d.c.Cordon(ctx, node.ID, d.deadline, d.force); err != nil {
		return Result{Node: d.name}, &exit.Failure{Action: action, Err: err}
	}
	if d.noWait {
		return Result{Node: d.name, sentence: d.name + " drains."}, nil
	}
	return d.wait(ctx)
}

func (d *nodeDrainer) wait(ctx context.Context) (Result, error) {
	show := d.session.Out.Progress(d.mode)
	defer show.Close()
	led := settle.NewLedger(d.ordered)
	err := d.watch.Until(ctx, settle.LookEvery, func(v client.View) (bool, error) {
		now := d.session.Out.Now()
		over, err := d.judge(v, now)
		show.Show(d.screen(led, v, now, over))
		return over, err
	})
	if err != nil {
		return d.result(false, ""), d.ended(ctx, fleet.Target{Name: d.name, Node: true}, fmt.Sprintf("stopped watching: %s goes on draining", d.name), err)
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
		parked := a.Desire == cluster.DesireDrain && fleet.Safe(w.WorkerStatus)
		if here && !parked && !fleet.Safe(w.WorkerStatus) {
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
		return false, &exit.Failure{Action: action, Err: errors.New("the node is gone, and its workers with it"), Tries: []string{"dynctl ps --nodes"}}
	case cordoned && len(d.waiting) == 0:
		return true, nil
	case !cordoned && now.Sub(d.ordered) > forceLimit/10:
		return false, &exit.Failure{Action: action, Err: errors.New("it was resumed meanwhile")}
	case d.overdue(now):
		return false, d.late(now)
	}
	return false, nil
}

// late lists what keeps the node and the ways on.
func (d *nodeDrainer) late(now time.Time) error {
	f := &exit.Failure{
		Action: fmt.Sprintf("%s did not drain in %s", d.name, human.Duration(now.Sub(d.ordered))), Code: exit.Deadline,
		Err:   fmt.Errorf("%s left", human.Plural(len(d.waiting), "worker")),
		Facts: []string{"it goes on draining and takes no workers"},
		Tries: []string{
			"dynctl drain " + fleet.NodePrefix + d.name + " --deadline 10m   to wait on",
			"dynctl resume " + fleet.NodePrefix + d.name + "   to take it back",
			"dynctl drain " + fleet.NodePrefix + d.name + " --force --deadline 0 --yes   to cut off what runs; other workers continue it",
		},
	}
	for _, w := range d.waiting {
		text := "  " + w.Name + "  " + human.State(w)
		if w.Drain != nil && w.State == cluster.StateDraining {
			text += "  " + fleet.DrainText(w)
		}
		if w.ReplacedBy != "" && w.Desire == cluster.DesireRun {
			text += "  waits for " + w.ReplacedBy
		}
		f.Facts = append(f.Facts, text)
	}
	return f
}

func (d *nodeDrainer) screen(led *settle.Ledger, v client.View, now time.Time, over bool) progress.Screen {
	s := progress.Screen{
		Operation: "drain", Subject: d.name, Title: d.name + "  node  draining",
		Footer: fmt.Sprintf("ctrl-c stops watching only.  undo: dynctl resume %s%s", fleet.NodePrefix, d.name),
	}
	switch {
	case over:
		s.Title, s.Footer = d.name+"  node  drained", ""
	case !d.deadline.IsZero():
		s.Title += "   deadline in " + human.Clock(d.deadline.Sub(now))
	}
	rows := map[string]progress.Row{}
	for name, w := range d.known {
		rows[name] = led.Leaving(w, v.Nodes, slices.Contains(d.left, name), now)
		if w.Desire == cluster.DesireRun && !slices.Contains(d.left, name) {
			r := rows[name]
			r.Word, r.Detail, r.Line = "serving", "until its successor serves", name+" "+string(w.Role)+" serving"
			if s, ok := v.Successor(name); ok {
				r.Detail = "until " + s.Name + " serves, which is " + human.State(s)
				r.Line += ", " + s.Name + " " + string(s.State)
			}
			r.Cells = []string{name, string(w.Role), human.Place(v.Nodes, w), r.Word}
			rows[name] = r
		}
	}
	for _, name := range led.Order {
		if r, ok := rows[name]; ok {
			s.Rows = append(s.Rows, r)
		}
	}
	return s
}

func (d *nodeDrainer) result(done bool, sentence string) Result {
	took := d.session.Out.Now().Sub(d.ordered).Milliseconds()
	r := Result{Node: d.name, State: cluster.StateDraining, Open: []cluster.OpenSequence{}, DurationMS: &took, Workers: d.left, sentence: sentence}
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
	text := fmt.Sprintf("%s drained in %s: %s left.", d.name, human.Duration(d.session.Out.Now().Sub(d.ordered)), human.Plural(len(d.left), "worker"))
	if len(d.homeless) > 0 {
		d.session.Out.Note("workers that no node has room for: %s", strings.Join(d.homeless, "; "))
	}
	if k := d.keeps(); len(k) > 0 {
		return text + " it hosts the cluster's " + strings.Join(k, " and ") + ": not safe to stop."
	}
	if d.node.FrontendURL != "" {
		d.session.Out.Note("its frontend %s stops with it; an orderly stop lets its requests finish", d.node.FrontendURL)
	}
	return text + " safe to stop."
}
