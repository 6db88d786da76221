package down

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/settle"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/statedir"
)

// hurryAtLeast is the least time that processes get to end once their workers are gone,
// even when the deadline has passed.
const hurryAtLeast = 500 * time.Millisecond

// drained waits until all workers are gone or the deadline has passed. before is how many there
// were when they were told to: some may be gone at the first look.
func (d *downturn) drained(ctx context.Context, w *client.Watch, before int) error {
	waiting, cancel := context.WithDeadline(ctx, time.Now().Add(d.o.Deadline))
	defer cancel()
	most := before
	var left []cluster.Worker
	err := w.Until(waiting, settle.LookEvery, func(v client.View) (bool, error) {
		left = v.Workers()
		most = max(most, len(left))
		d.screen.workers(v)
		return len(left) == 0, nil
	})
	d.res.Workers += most - len(left)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return d.interrupted(err)
	case waiting.Err() == nil:
		d.session.Out.Warn("workers are not drained: %v", err)
		return nil
	}
	d.res.Workers += len(left)
	for _, wk := range left {
		if wk.Drain != nil {
			d.cutOff.Add(wk.Role, wk.Drain.Left)
		} else {
			d.cutOff.Add(wk.Role, fleet.OpenSequences(wk))
		}
	}
	d.res.CutOff = d.cutOff.Sum()
	var names []string
	for _, wk := range left {
		names = append(names, wk.Name)
	}
	if d.o.Deadline > 0 {
		d.session.Out.Warn("the deadline of %s passed: %s not drained, %s", human.Duration(d.o.Deadline), human.Names(names), running(d.cutOff))
	}
	return nil
}

// interrupted returns the message about what continues after ctrl-c.
func (d *downturn) interrupted(err error) error {
	return &exit.Stopped{Text: "stopped watching: workers go on draining, no process was stopped", Tries: []string{"dynctl down"}, Err: err}
}

// stopProcesses ends the dynamod processes of this machine, the highest number
// first and the one with the stores last.
func (d *downturn) stopProcesses(ctx context.Context) error {
	running, err := launch.List(d.local)
	if err != nil {
		return &exit.Failure{Action: downAction, Err: err}
	}
	running = d.ours(running)
	stores := ""
	if e, err := d.local.Endpoints(); err == nil {
		stores = e.Node
	}
	slices.SortFunc(running, func(a, b launch.Running) int { return human.CompareNodes(b.Node.Name, a.Node.Name) })
	var first, last []launch.Running
	for _, p := range running {
		if p.Node.Name == stores {
			last = append(last, p)
		} else {
			first = append(first, p)
		}
	}
	for _, group := range [][]launch.Running{first, last} {
		if len(group) == 0 {
			continue
		}
		times := launch.Times{Hurry: laterOf(d.deadline, time.Now().Add(hurryAtLeast)), Grace: d.o.Grace}
		endings, err := launch.Stop(ctx, group, times, d.screen.processes)
		for _, e := range endings {
			if e.Gone {
				d.res.Processes++
			}
			if e.Killed {
				d.res.Killed = append(d.res.Killed, e.Node.Name)
				d.session.Out.Warn("%s (process %d) did not end in time and was killed", e.Node.Name, e.PID)
			}
		}
		if err != nil {
			if ctx.Err() != nil {
				return &exit.Stopped{Text: "stopped watching: the processes go on stopping", Tries: []string{"dynctl down"}, Err: err}
			}
			return &exit.Failure{Action: downAction, Err: err}
		}
	}
	return nil
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// here reports whether a node runs on this machine.
func (d *downturn) here(n cluster.Node) bool {
	host, err := os.Hostname()
	return err == nil && n.Host == host
}

// localSocket returns the addresses that a node of this cluster on this machine
// listens at.
func (d *downturn) localSocket(n cluster.Node) []string {
	node, err := d.local.Node(n.Name)
	if err != nil || !d.here(n) {
		return nil
	}
	if pid, held := node.Holder(); !held || pid != n.PID {
		return nil
	}
	listens := []string{hostOf(n.FrontendURL), hostOf(n.StatusURL)}
	if at, plane := cluster.SplitPlane(n.RequestPlane); plane != cluster.PlaneNATS {
		listens = append(listens, at)
	}
	return listens
}

// ours are the processes to stop.
func (d *downturn) ours(running []launch.Running) []launch.Running {
	return slices.DeleteFunc(slices.Clone(running), func(p launch.Running) bool { return d.only != "" && p.Node.Namespace() != d.only })
}

// besides are the namespaces of processes that use the stores of another one.
func besides(running []launch.Running, e statedir.Endpoints) []string {
	var out []string
	for _, p := range running {
		if ns := p.Node.Namespace(); ns != "" && ns != e.Namespace && !slices.Contains(out, ns) {
			out = append(out, ns)
		}
	}
	return out
}

// sweep removes what killed processes left, or says what still runs.
func (d *downturn) sweep() (left []string, err error) {
	if d.only == "" {
		return launch.Sweep(d.local)
	}
	running, err := launch.List(d.local)
	for _, p := range d.ours(running) {
		left = append(left, fmt.Sprintf("process %d still runs %s", p.PID, p.Node.Name))
	}
	return left, err
}

// finish makes sure that nothing is left and says what was stopped.
func (d *downturn) finish() error {
	left, err := d.sweep()
	if err != nil {
		return &exit.Failure{Action: downAction, Err: err}
	}
	for _, a := range listening(d.sockets) {
		left = append(left, "a process still listens at "+a)
	}
	d.res.Left = append(d.res.Left, left...)
	d.res.DurationMS = d.session.Out.Now().Sub(d.begin).Milliseconds()
	d.screen.close()
	var unpurged error
	if d.o.Purge && len(left) == 0 {
		unpurged = d.purge()
	}
	if err := d.session.Out.Answer(output.Answer{Data: d.res, Text: d.sentence() + d.purgedText() + "\n"}); err != nil {
		return err
	}
	if len(left) > 0 {
		return &exit.Failure{Action: "cluster " + d.session.Config.Cluster + " is still running in part", Err: errors.New(left[0]), Facts: left[1:]}
	}
	if unpurged != nil {
		return unpurged
	}
	if len(d.res.Remote) > 0 {
		d.session.Out.Note("agents that were not started here go on without workers: %s", strings.Join(d.res.Remote, ", "))
		if d.res.CutOff > 0 && d.res.Processes == 0 {
			return &exit.Failure{Action: "workers of cluster " + d.session.Config.Cluster + " still drain", Err: errors.New("the deadline passed"), Code: exit.Deadline, Tries: []string{"dynctl ps"}}
		}
	}
	return nil
}

func (d *downturn) sentence() string {
	var parts []string
	if d.res.Workers > 0 {
		parts = append(parts, human.Plural(d.res.Workers, "worker"))
	}
	if d.res.Processes > 0 {
		word := "dynamod process"
		if d.res.Processes > 1 {
			word += "es"
		}
		parts = append(parts, fmt.Sprintf("%d %s", d.res.Processes, word))
	}
	if len(parts) == 0 {
		return "nothing of cluster " + d.session.Config.Cluster + " runs on this machine"
	}
	state := "is down"
	if len(d.res.Remote) > 0 {
		state = "has no workers"
	}
	what := "cluster " + d.session.Config.Cluster
	if d.only != "" {
		what = "namespace " + d.only + " of " + what
	}
	s := fmt.Sprintf("%s %s: stopped %s in %s", what, state, strings.Join(parts, " and "), human.Duration(time.Duration(d.res.DurationMS)*time.Millisecond))
	if d.res.CutOff > 0 {
		s += fmt.Sprintf(", %s cut off", &d.cutOff)
	}
	return s
}
