package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

const (
	// lookEvery is how often a waiting command looks at the clock.
	lookEvery = 100 * time.Millisecond
	// forceLimit is how long a drain without a deadline of its own may take.
	forceLimit = 30 * time.Second
	// lateness is how long after the deadline news still count: the worker's last
	// status may be on its way.
	lateness = 300 * time.Millisecond
)

// drainer drains one worker.
type drainer struct {
	inv   *invocation
	c     *client.Cluster
	watch *client.Watch
	name  string
	limit time.Duration // 0: now
	force bool          // cut off what runs then
	// replace has a successor start first; the worker goes when it is drained.
	replace bool
	noWait  bool
	mode    string

	before cluster.WorkerStatus // as it was before the order
	worker cluster.Worker       // newest
	// successor is the worker that takes the place; its name is empty until there is one.
	successor cluster.Worker
	nodes     []cluster.Node
	seen      *cluster.DrainStatus // newest of this drain
	steps     map[cluster.DrainStep]time.Time
	ordered   time.Time
	deadline  time.Time // zero when forced
	obeyed    bool      // the order was seen in the store
	resting   map[time.Time]bool
	stale     time.Time
}

// run gives the order and waits for its end.
func (d *drainer) run(ctx context.Context) (drainResult, error) {
	action := "cannot drain " + d.name
	v := d.watch.View()
	a, ok := v.Assignments[d.name]
	if !ok {
		return drainResult{}, d.inv.noWorker(action, d.name, v)
	}
	d.before = v.Status[d.name]
	d.look(v)
	if a.Desire == cluster.DesireDrain && safe(d.before) {
		return d.result(fmt.Sprintf("%s is drained already. safe to stop.", d.name)), nil
	}
	if a.Node == "" {
		// No engine exists; the order keeps it from being started.
		if err := d.c.Drain(ctx, d.name, time.Time{}, false); err != nil {
			return drainResult{}, &failure{action: action, err: err}
		}
		r := d.result(d.name + " runs on no node: there is nothing to drain, and it is not started.")
		return r, nil
	}
	if !d.replace {
		d.inv.lastServing(d.name, v)
	}
	d.ordered = d.inv.env.Now()
	if d.limit > 0 {
		d.deadline = d.ordered.Add(d.limit)
	}
	give := d.c.Drain
	if d.replace {
		give = d.c.Replace
	}
	if err := give(ctx, d.name, d.deadline, d.force); err != nil {
		return drainResult{}, &failure{action: action, err: err}
	}
	if d.noWait && d.replace {
		return d.result(fmt.Sprintf("%s drains when a successor serves, until %s.", d.name, d.until())), nil
	}
	if d.noWait {
		return d.result(fmt.Sprintf("%s drains until %s.", d.name, d.until())), nil
	}
	return d.wait(ctx)
}

// lastServing warns when nobody else of a worker's role is left to serve.
func (inv *invocation) lastServing(name string, v client.View) {
	serving, w := 0, v.Worker(name)
	for _, o := range v.Workers() {
		if o.Role == w.Role && o.State.Serving() && o.Desire == cluster.DesireRun {
			serving++
		}
	}
	if !w.State.Serving() || serving != 1 {
		return
	}
	if w.Role == cluster.RoleDecode {
		inv.note("%s is the only decode worker that serves: requests wait until another one does", name)
	} else {
		inv.note("%s is the only %s worker that serves", name, w.Role)
	}
}

func (d *drainer) until() string {
	if d.deadline.IsZero() {
		return "its requests are cut off"
	}
	return d.deadline.Format(time.TimeOnly)
}

// safe reports whether a worker says that nothing of it is left. Nothing else counts.
func safe(st cluster.WorkerStatus) bool {
	return (st.State == cluster.StateDrained || st.State == cluster.StateStopped) && st.Drain != nil && st.Drain.Safe
}

// look takes in a view.
func (d *drainer) look(v client.View) {
	d.nodes = v.Nodes
	if s, ok := v.Successor(d.name); ok {
		d.successor = s
	} else if s := d.successor; s.Name != "" { // it follows nobody any more
		d.successor.WorkerStatus = v.Status[s.Name]
		d.successor.Name = s.Name
	}
	for _, w := range v.Workers() {
		if w.Name == d.name {
			d.worker = w
		}
	}
	if since, _, _ := d.watch.Stale(); d.stale != since {
		d.stale = since
	}
}

// wait watches until the worker is drained, the deadline passed or ctx ended.
func (d *drainer) wait(ctx context.Context) (drainResult, error) {
	show := d.inv.progress(d.mode)
	defer show.Close()
	d.steps, d.resting = map[cluster.DrainStep]time.Time{}, map[time.Time]bool{}
	var done drainResult
	err := d.watch.Until(ctx, lookEvery, func(v client.View) (bool, error) {
		d.look(v)
		now := d.inv.env.Now()
		over, err := d.judge(v, now)
		if over {
			done = d.result(d.sentence(now))
		}
		show.Show(d.screen(now, over))
		return over, err
	})
	if err != nil && ctx.Err() != nil {
		return drainResult{}, &interrupted{
			text:  fmt.Sprintf("stopped watching: %s goes on draining until %s", d.name, d.until()),
			tries: []string{"dynctl resume " + d.name + "   to take it back"}, err: err,
		}
	}
	if err != nil {
		var f *failure
		if !errors.As(err, &f) {
			err = &failure{action: "cannot drain " + d.name, err: err}
		}
		return d.result(""), err
	}
	return done, nil
}

// judge decides whether the drain has ended.
func (d *drainer) judge(v client.View, now time.Time) (over bool, err error) {
	action := d.name + " did not drain"
	a, assigned := v.Assignments[d.name]
	st, known := v.Status[d.name]
	if d.replace {
		return d.judgeReplaced(v, now)
	}
	switch {
	case !assigned:
		return false, &failure{action: action, err: errors.New("it was removed")}
	case a.Desire == cluster.DesireDrain:
		d.obeyed = true
	case d.obeyed && a.Desire == cluster.DesireRun:
		return false, &failure{action: action, err: errors.New("somebody resumed it")}
	}
	if known && d.obeyed && !d.old(st) {
		d.take(st, now)
	}
	switch {
	case known && safe(st) && d.obeyed && !d.old(st):
		return true, nil
	case d.obeyed && a.Node == "":
		return false, &failure{action: action, err: errors.New("its node is gone, and what it ran with it")}
	case !d.deadline.IsZero() && now.After(d.deadline.Add(lateness)), d.deadline.IsZero() && now.Sub(d.ordered) > forceLimit:
		return false, d.overdue(now)
	}
	return false, nil
}

// take takes in a status of this drain.
func (d *drainer) take(st cluster.WorkerStatus, now time.Time) {
	if st.Drain == nil {
		return
	}
	d.seen = st.Drain
	if _, ok := d.steps[st.Drain.Step]; !ok {
		d.steps[st.Drain.Step] = now
	}
}

// judgeReplaced is judge for a worker that goes. The controller deletes its assignment
// when it has said that it is stopped, or when its node is gone.
func (d *drainer) judgeReplaced(v client.View, now time.Time) (over bool, err error) {
	action := d.name + " was not replaced"
	a, assigned := v.Assignments[d.name]
	st, known := v.Status[d.name]
	if known && d.obeyed {
		d.take(st, now)
	}
	lives := slices.ContainsFunc(v.Nodes, func(n cluster.Node) bool { return n.ID == d.before.Node })
	switch {
	case d.obeyed && known && safe(st), !assigned && d.obeyed && lives:
		return true, nil
	case !assigned && !lives:
		return false, &failure{action: action, err: errors.New("its node is gone, and what it ran with it")}
	case !assigned:
		return false, &failure{action: action, err: errors.New("it was removed")}
	case a.Desire == cluster.DesireRemove && a.Replace:
		d.obeyed = true
	case d.successor.Name != "" && !a.Replace:
		return false, &failure{action: action, err: errors.New("somebody resumed it")}
	}
	if now.After(d.ordered.Add(max(d.limit, forceLimit)).Add(lateness)) || !d.deadline.IsZero() && now.After(d.deadline.Add(lateness)) {
		return false, d.overdue(now)
	}
	return false, nil
}

// old reports whether a status may be that of an earlier drain. A drained worker
// that was about to be resumed says "drained" for a while; it counts only once it
// has said so several times since the order.
func (d *drainer) old(st cluster.WorkerStatus) bool {
	if !safe(d.before) || !safe(st) || !st.Drain.StartedAt.Equal(d.before.Drain.StartedAt) {
		return false
	}
	if !st.UpdatedAt.Equal(d.before.UpdatedAt) {
		d.resting[st.UpdatedAt] = true
	}
	return len(d.resting) < 2
}

// result is the outcome so far.
func (d *drainer) result(sentence string) drainResult {
	r := drainResult{Worker: d.name, State: d.worker.State, Safe: safe(d.worker.WorkerStatus), Open: []cluster.OpenSequence{}, sentence: sentence}
	if d.replace && sentence != "" && !d.noWait { // its last word may have gone with its assignment
		r.State, r.Safe = cluster.StateStopped, true
	}
	if d.replace {
		r.Successor = d.successor.Name
	}
	if s := d.seen; s != nil {
		took := d.took(d.inv.env.Now()).Milliseconds()
		r.DurationMS, r.Sequences, r.Finished, r.Moved, r.Cancelled = &took, &s.Sequences, &s.Finished, &s.Moved, &s.Cancelled
		r.Routers, r.RoutersAcknowledged, r.Unacknowledged = &s.Routers, &s.Acknowledged, nodesNamed(d.nodes, s.Unacknowledged)
		r.Open = append(r.Open, s.Open...)
	}
	return r
}

// took is how long the drain lasted, by the worker's clock once it has ended.
func (d *drainer) took(now time.Time) time.Duration {
	if s := d.seen; s != nil && s.EndedAt.After(s.StartedAt) {
		return s.EndedAt.Sub(s.StartedAt)
	}
	return max(now.Sub(d.ordered), 0)
}

func (d *drainer) sentence(now time.Time) string {
	s := d.seen
	if d.replace {
		text := fmt.Sprintf("%s drained in %s", d.name, duration(d.took(now)))
		if s != nil {
			text += fmt.Sprintf(": %d finished, %d moved, %d cancelled", s.Finished, s.Moved, s.Cancelled)
		}
		return text + "; " + d.successor.Name + " serves in its place. safe to stop."
	}
	return fmt.Sprintf("%s drained in %s: %d finished, %d moved, %d cancelled. safe to stop.",
		d.name, duration(d.took(now)), s.Finished, s.Moved, s.Cancelled)
}

// overdue lists what keeps the worker and the ways on.
func (d *drainer) overdue(now time.Time) error {
	f := &failure{
		action: fmt.Sprintf("%s did not drain in %s", d.name, duration(now.Sub(d.ordered))), err: errNotDrained, code: exitDeadline,
		facts: []string{"it stays draining and takes no new requests"},
		tries: []string{
			"dynctl drain " + d.name + " --deadline 10m   to wait on",
			"dynctl resume " + d.name + "   to take it back",
			"dynctl drain " + d.name + " --deadline 0 --yes   to cut off what runs; other workers continue it",
		},
	}
	switch s := d.seen; {
	case !d.stale.IsZero():
		f.facts = append(f.facts, fmt.Sprintf("the cluster has been out of reach for %s: what is known may be old", age(now.Sub(d.stale))))
	case d.replace && !d.obeyed:
		f.err = errNotReplaced
		f.facts = []string{"it serves as before, and drains when a successor serves"}
		if w := d.successor; w.Name != "" {
			f.facts = append(f.facts, w.Name+" is "+stateText(w))
		}
		f.tries = []string{"dynctl ps", "dynctl resume " + d.name + "   to take it back"}
	case s == nil:
		f.facts = []string{"it has not begun: its agent does not take the order"}
		f.tries = []string{"dynctl ps --nodes", "dynctl logs"}
	default:
		f.err = fmt.Errorf("%d of %s left", s.Left, plural(max(s.Sequences, s.Left), "sequence"))
		if s.Left == 0 {
			f.err = fmt.Errorf("it waits at %s", s.Step)
		}
		for _, q := range s.Open {
			fact := "  " + openText(q)
			if q.Why != "" {
				fact += "  not moved: " + q.Why
			}
			f.facts = append(f.facts, fact)
		}
		if n := s.Left - len(s.Open); n > 0 && len(s.Open) > 0 {
			f.facts = append(f.facts, fmt.Sprintf("  … %d more", n))
		}
	}
	return f
}

// errNotReplaced is returned when no successor served by the deadline.
var errNotReplaced = errors.New("no successor serves yet")

func openText(q cluster.OpenSequence) string {
	return fmt.Sprintf("%s  %s tok out  %s", q.RequestID, commas(q.OutTokens), clockLeft(time.Duration(q.AgeMS)*time.Millisecond))
}
