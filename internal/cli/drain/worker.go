package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/settle"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// drainer drains one worker.
type drainer struct {
	drainOrder
	// replace has a successor start first; the worker goes when it is drained.
	replace bool
	// level is at which level the server sleeps in the end; 0 if the worker is to end.
	level int

	before cluster.WorkerStatus // as it was before the order
	worker cluster.Worker       // newest
	// successor is the worker that takes the place; its name is empty until there is one.
	successor cluster.Worker
	nodes     []cluster.Node
	seen      *cluster.DrainStatus // newest of this drain
	steps     map[cluster.DrainStep]time.Time
	obeyed    bool // the order was seen in the store
	alone     bool // no other worker of its role served at the order
	resting   map[time.Time]bool
	stale     time.Time
}

// run gives the order and waits for its end.
func (d *drainer) run(ctx context.Context) (Result, error) {
	action := "cannot " + d.verb() + " " + d.name
	v := d.watch.View()
	a, err := fleet.Worker(d.session, action, d.name, v)
	if err != nil {
		return Result{}, err
	}
	d.before = v.Status[d.name]
	d.look(v)
	if a.Desire == cluster.DesireDrain && d.rests(d.before) && d.before.Sleep == d.level {
		return d.result(fmt.Sprintf("%s %s already. safe to stop.", d.name, d.end())), nil
	}
	if a.Node == "" && d.level > 0 {
		return Result{}, &exit.Failure{Action: action, Err: errors.New("it runs on no node"), Tries: []string{"dynctl ps"}}
	}
	if a.Node == "" {
		// No engine exists; the order keeps it from being started.
		if err := d.c.Drain(ctx, d.name, time.Time{}, false); err != nil {
			return Result{}, &exit.Failure{Action: action, Err: err}
		}
		r := d.result(d.name + " runs on no node: there is nothing to drain, and it is not started.")
		return r, nil
	}
	if !d.replace {
		d.alone = fleet.LastServing(d.session, d.name, v)
	}
	d.begin()
	give := d.c.Drain
	switch {
	case d.replace:
		give = d.c.Replace
	case d.level > 0:
		give = func(ctx context.Context, worker string, deadline time.Time, _ bool) error {
			return d.c.Sleep(ctx, worker, d.level, deadline)
		}
	}
	if err := give(ctx, d.name, d.deadline, d.force); err != nil {
		return Result{}, &exit.Failure{Action: action, Err: err}
	}
	if d.noWait && d.replace {
		return d.result(fmt.Sprintf("%s drains when a successor serves, until %s.", d.name, d.until())), nil
	}
	if d.noWait && d.level > 0 {
		return d.result(fmt.Sprintf("%s drains until %s, and sleeps then.", d.name, d.until())), nil
	}
	if d.noWait {
		return d.result(fmt.Sprintf("%s drains until %s.", d.name, d.until())), nil
	}
	return d.wait(ctx)
}

// verb is the command whose order it is.
func (d *drainer) verb() string {
	if d.level > 0 {
		return "sleep"
	}
	return "drain"
}

// end says what the worker does when the order is carried out.
func (d *drainer) end() string {
	if d.level > 0 {
		return fmt.Sprintf("sleeps at level %d", d.level)
	}
	return "is drained"
}

// rests reports whether a status is what the order asks for.
func (d *drainer) rests(st cluster.WorkerStatus) bool {
	return fleet.Safe(st) && (st.State == cluster.StateSleeping) == (d.level > 0)
}

func (d *drainer) until() string {
	if d.deadline.IsZero() {
		return "its requests are cut off"
	}
	return d.deadline.Format(time.TimeOnly)
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
func (d *drainer) wait(ctx context.Context) (Result, error) {
	show := d.session.Out.Progress(d.mode)
	defer show.Close()
	d.steps, d.resting = map[cluster.DrainStep]time.Time{}, map[time.Time]bool{}
	var done Result
	err := d.watch.Until(ctx, settle.LookEvery, func(v client.View) (bool, error) {
		d.look(v)
		now := d.session.Out.Now()
		over, err := d.judge(v, now)
		if over {
			done = d.result(d.sentence(now))
		}
		show.Show(view{d}.screen(now, over))
		return over, err
	})
	var no *declined
	if errors.As(err, &no) {
		return d.result(""), d.takeBack(ctx, no)
	}
	if err != nil {
		return d.result(""), d.ended(ctx, fleet.Target{Name: d.name}, fmt.Sprintf("stopped watching: %s goes on draining until %s", d.name, d.until()), err)
	}
	return done, nil
}

// declined is the error about a worker that serves on, as its server cannot sleep.
type declined struct{ why string }

func (d *declined) Error() string { return d.why }

// takeBack takes an order back that the worker declined: nothing shall wait for it.
func (d *drainer) takeBack(ctx context.Context, no *declined) error {
	f := &exit.Failure{Action: d.name + " did not sleep", Err: no, Facts: []string{"it serves on"}}
	if err := d.c.Resume(ctx, d.name); err != nil {
		f.Facts = []string{"the order stays: " + err.Error()}
		f.Tries = []string{"dynctl wake " + d.name + "   to take it back"}
	}
	return f
}

// judge decides whether the drain has ended.
func (d *drainer) judge(v client.View, now time.Time) (over bool, err error) {
	action := d.name + " did not " + d.verb()
	a, assigned := v.Assignments[d.name]
	st, known := v.Status[d.name]
	if d.replace {
		return d.judgeReplaced(v, now)
	}
	switch {
	case !assigned:
		return false, &exit.Failure{Action: action, Err: errors.New("it was removed")}
	case a.Desire == cluster.DesireDrain && a.Sleep == d.level:
		d.obeyed = true
	case d.obeyed && a.Desire == cluster.DesireDrain:
		return false, &exit.Failure{Action: action, Err: errors.New("it was ordered something else meanwhile")}
	case d.obeyed && a.Desire == cluster.DesireRun:
		return false, &exit.Failure{Action: action, Err: errors.New("it was resumed meanwhile")}
	}
	if known && d.obeyed && !d.old(st) {
		d.take(st, now)
	}
	switch {
	case known && d.rests(st) && d.obeyed && !d.old(st):
		return true, nil
	case known && d.obeyed && d.level > 0 && st.State.Serving() && st.Declined.Generation == a.Generation && st.Declined.Why != "":
		return false, &declined{st.Declined.Why}
	case known && d.obeyed && d.level > 0 && st.State == cluster.StateFailed && st.Restarts > d.before.Restarts:
		return false, &exit.Failure{
			Action: action, Err: errors.New(st.Reason), Facts: []string{"its agent goes on trying"}, Tries: []string{"dynctl wake " + d.name + "   to take it back", "dynctl logs " + d.name},
		}
	case d.obeyed && a.Node == "":
		return false, &exit.Failure{Action: action, Err: errors.New("its node is gone, and its requests with it")}
	case d.overdue(now):
		return false, d.late(now)
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
	case d.obeyed && known && fleet.Safe(st), !assigned && d.obeyed && lives:
		return true, nil
	case !assigned && !lives:
		return false, &exit.Failure{Action: action, Err: errors.New("its node is gone, and its requests with it")}
	case !assigned:
		return false, &exit.Failure{Action: action, Err: errors.New("it was removed")}
	case a.Desire == cluster.DesireRemove && a.Replace:
		d.obeyed = true
	case d.successor.Name != "" && !a.Replace:
		return false, &exit.Failure{Action: action, Err: errors.New("it was resumed meanwhile")}
	}
	if now.After(d.ordered.Add(max(d.limit, forceLimit)).Add(lateness)) || !d.deadline.IsZero() && now.After(d.deadline.Add(lateness)) {
		return false, d.late(now)
	}
	return false, nil
}

// old reports whether a status may be that of an earlier drain. A drained worker
// that was about to be resumed says "drained" for a while; it counts only once it
// has said so several times since the order.
func (d *drainer) old(st cluster.WorkerStatus) bool {
	if st.State != d.before.State || !fleet.Safe(d.before) || !fleet.Safe(st) || !st.Drain.StartedAt.Equal(d.before.Drain.StartedAt) {
		return false
	}
	if !st.UpdatedAt.Equal(d.before.UpdatedAt) {
		d.resting[st.UpdatedAt] = true
	}
	return len(d.resting) < 2
}

// result is the outcome so far.
func (d *drainer) result(sentence string) Result {
	r := Result{Worker: d.name, State: d.worker.State, Safe: fleet.Safe(d.worker.WorkerStatus), Open: []cluster.OpenSequence{}, sentence: sentence}
	if d.replace && sentence != "" && !d.noWait { // its last word may have gone with its assignment
		r.State, r.Safe = cluster.StateStopped, true
	}
	if d.replace {
		r.Successor = d.successor.Name
	}
	if s := d.seen; s != nil {
		took := d.took(d.session.Out.Now()).Milliseconds()
		r.DurationMS, r.Sequences, r.Finished, r.Moved, r.Cancelled, r.CutOff = &took, &s.Sequences, &s.Finished, &s.Moved, &s.Cancelled, &s.CutOff
		r.Routers, r.RoutersAcknowledged, r.Unacknowledged = &s.Routers, &s.Acknowledged, fleet.NodesNamed(d.nodes, s.Unacknowledged)
		r.Open = append(r.Open, s.Open...)
	}
	return r
}

// took returns the duration of the drain, by the worker's clock once it has ended.
func (d *drainer) took(now time.Time) time.Duration {
	if s := d.seen; s != nil && s.EndedAt.After(s.StartedAt) {
		return s.EndedAt.Sub(s.StartedAt)
	}
	return max(now.Sub(d.ordered), 0)
}

func (d *drainer) sentence(now time.Time) string {
	s := d.seen
	if d.replace {
		text := fmt.Sprintf("%s drained in %s", d.name, human.Duration(d.took(now)))
		if s != nil {
			text += ": " + s.Ends()
		}
		return text + "; " + d.successor.Name + " serves in its place. safe to stop."
	}
	if d.level > 0 {
		return fmt.Sprintf("%s %s after %s: %s. dynctl wake brings it back.", d.name, d.end(), human.Duration(d.took(now)), s.Ends())
	}
	return fmt.Sprintf("%s drained in %s: %s%s. safe to stop.", d.name, human.Duration(d.took(now)), s.Ends(), d.cutOffText(s))
}

// cutOffText says what becomes of the sequences that were cut off.
func (d *drainer) cutOffText(s *cluster.DrainStatus) string {
	switch {
	case s.CutOff == 0:
		return ""
	case !d.worker.Role.HoldsKV():
		return "; who wants what was cut off has it encoded elsewhere"
	case d.alone:
		return fmt.Sprintf("; what was cut off fails unless another %s worker serves within %s", d.worker.Role, cluster.TakeoverWait)
	}
	return "; other workers compute what was cut off again"
}

// late lists what keeps the worker and the ways on.
func (d *drainer) late(now time.Time) error {
	f := &exit.Failure{
		Action: fmt.Sprintf("%s did not %s in %s", d.name, d.verb(), human.Duration(now.Sub(d.ordered))), Err: errNotDrained, Code: exit.Deadline,
		Facts: []string{"it stays draining and takes no new requests"},
		Tries: []string{
			"dynctl drain " + d.name + " --deadline 10m   to wait on",
			"dynctl resume " + d.name + "   to take it back",
			"dynctl drain " + d.name + " --deadline 0 --yes   to cut off what runs; other workers continue it",
		},
	}
	if d.level > 0 {
		f.Tries = []string{
			fmt.Sprintf("dynctl sleep %s --level %d --deadline 10m   to wait on", d.name, d.level), "dynctl wake " + d.name + "   to take it back",
		}
	}
	switch s := d.seen; {
	case !d.stale.IsZero():
		f.Facts = append(f.Facts, fmt.Sprintf("the store has been unreachable for %s: these figures may be old", human.Age(now.Sub(d.stale))))
	case d.replace && !d.obeyed:
		f.Err = errNotReplaced
		f.Facts = []string{"it serves as before, and drains when a successor serves"}
		if w := d.successor; w.Name != "" {
			f.Facts = append(f.Facts, w.Name+" is "+human.State(w))
		}
		f.Tries = []string{"dynctl ps", "dynctl resume " + d.name + "   to take it back"}
	case s == nil:
		f.Facts = []string{"it has not begun: its agent has not accepted the order"}
		f.Tries = []string{"dynctl ps --nodes", "dynctl logs"}
	default:
		f.Err = fmt.Errorf("%d of %s left", s.Left, human.Plural(max(s.Sequences, s.Left), d.worker.Role.Unit()))
		if s.Left == 0 {
			f.Err = fmt.Errorf("it waits at %s", s.Step.For(d.worker.Role))
		}
		for _, q := range s.Open {
			fact := "  " + openText(d.worker.Role, q)
			if q.Why != "" {
				fact += "  not moved: " + q.Why
			}
			f.Facts = append(f.Facts, fact)
		}
		if n := s.Left - len(s.Open); n > 0 && len(s.Open) > 0 {
			f.Facts = append(f.Facts, fmt.Sprintf("  … %d more", n))
		}
	}
	return f
}

// errNotReplaced is returned when no successor served by the deadline.
var errNotReplaced = errors.New("no successor serves yet")

func openText(r cluster.Role, q cluster.OpenSequence) string {
	if !r.HoldsKV() {
		return q.RequestID + "  " + human.Clock(time.Duration(q.AgeMS)*time.Millisecond)
	}
	return fmt.Sprintf("%s  %s tok out  %s", q.RequestID, human.Commas(q.OutTokens), human.Clock(time.Duration(q.AgeMS)*time.Millisecond))
}
