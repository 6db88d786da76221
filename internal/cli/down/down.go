package down

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/declare"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/statedir"
)

// Options stops a cluster.
type Options struct {
	Session *session.Session

	Deadline time.Duration
	Grace    time.Duration
	Yes      bool
	Purge    bool
	DryRun   bool
	Progress string
}

// Command makes dynctl down.
func Command(a *command.App) *cobra.Command {
	o := &Options{}
	cmd := a.Command(command.Verb{
		Use: "down", Short: "Drain all workers and stop the cluster on this machine", Group: command.GroupRun, Changes: true,
		Long: `Workers finish their requests, then the dynamod processes of this machine end, the one with
the stores last. With the namespace of a deployment beside that of the stores, only its own
processes do; without one, all namespaces end, and on a terminal the name of the cluster is
to be typed where there are several. Processes that still run at the deadline are told to
stop at once, and killed after --grace. In a cluster with stores of its own, agents on other
machines go on without workers.

Data of the stores, logs and the cluster's secret stay, for the next dynctl up. --purge
deletes them when everything has ended, with the files that were made of models unless
another cluster of this machine needs them. It asks first, and refuses while nodes use the
cluster that it cannot stop.`,
		Examples: []string{
			"dynctl down",
			"dynctl down --deadline 0 --yes   # now",
			"dynctl down --purge              # leave nothing on the disk",
		},
		See: []string{"dynctl up", "dynctl scale"},
		Options: func(s *session.Session, _ []string) command.Runner {
			o.Session = s
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	command.Duration(fs, &o.Deadline, "deadline", time.Minute, "how long requests may take to end")
	command.Duration(fs, &o.Grace, "grace", 10*time.Second, "how much longer processes may take before they are killed")
	fs.BoolVarP(&o.Yes, "yes", "y", false, "do not ask, though requests run")
	fs.BoolVar(&o.Purge, "purge", false, "delete data, logs and secret of the cluster afterwards")
	fs.BoolVar(&o.DryRun, "dry-run", false, "print what would be stopped, and stop nothing")
	command.Progress(fs, &o.Progress)
	command.Grouped(fs, "Waiting", "deadline", "grace", "yes", "purge", "dry-run", "progress")
	command.Rare(fs, "grace")
	return cmd
}

// Result is the outcome as -o json prints it.
type Result struct {
	Cluster    string   `json:"cluster"`
	Namespace  string   `json:"namespace,omitempty"` // the only one that was stopped
	Running    bool     `json:"was_running"`
	Workers    int      `json:"workers_removed"`
	Processes  int      `json:"processes_stopped"`
	Killed     []string `json:"processes_killed"`
	CutOff     int      `json:"sequences_cut_off"`
	Left       []string `json:"left"`
	Remote     []string `json:"remote_nodes"`
	Purged     []string `json:"purged,omitempty"` // paths that were deleted
	DurationMS int64    `json:"duration_ms"`
}

// downturn is one run of down.
type downturn struct {
	session  *session.Session
	o        *Options
	local    statedir.Cluster
	begin    time.Time
	deadline time.Time
	sockets  []string // that must be gone afterwards
	only     string   // namespace to stop, beside that of the stores; empty: all
	agreed   bool     // somebody was asked about all of it
	res      Result
	cutOff   fleet.Work // of what res counts
	screen   screen
}

// Run drains and stops the cluster.
func (o *Options) Run(ctx context.Context) error {
	local, err := o.Session.Local()
	if err != nil {
		return err
	}
	d := &downturn{session: o.Session, o: o, local: local, begin: o.Session.Out.Now(), res: Result{Cluster: o.Session.Config.Cluster, Killed: []string{}, Left: []string{}, Remote: []string{}}}
	d.deadline = d.begin.Add(o.Deadline)
	d.screen = newDownScreen(d, o.Session.Out.Progress(o.Progress))
	defer d.screen.close()
	running, err := launch.List(local)
	if err != nil {
		return &exit.Failure{Action: downAction, Err: err}
	}
	if o.DryRun && (len(running) > 0 || o.Purge || o.Session.External()) {
		return d.plan(ctx, running)
	}
	if o.Purge {
		if err := d.mayPurge(ctx, running); err != nil {
			return err
		}
	}
	if len(running) == 0 && !o.Session.External() {
		return d.nothing(ctx)
	}
	e, err := local.Endpoints()
	known := err == nil
	if known && o.Session.Beside(e) {
		d.only, d.res.Namespace = o.Session.Config.Namespace, o.Session.Config.Namespace
		if running = d.ours(running); len(running) == 0 {
			return o.Session.Out.Answer(output.Answer{Data: d.res, Text: fmt.Sprintf("nothing runs in namespace %s\n", d.only)})
		}
	} else if others := besides(running, e); o.Session.Named && known && len(others) > 0 {
		return &exit.Failure{
			Action: downAction, Err: fmt.Errorf("namespace %s shares its store and NATS with other namespaces: %s", e.Namespace, human.Names(others)), Code: exit.Usage,
			Tries: []string{"dynctl down   stops all of them", "dynctl down --namespace " + others[0]},
		}
	}
	if known && d.only == "" {
		if err := d.askForAll(e, besides(running, e), len(running)); err != nil {
			return err
		}
	}
	d.res.Running = true
	// Nobody shall start what is being stopped.
	lock, err := local.LockStart(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return &exit.Failure{Action: downAction, Err: err}
	}
	defer func() {
		if err := lock.Release(); err != nil {
			o.Session.Out.Warn("start lock not released: %v", err)
		}
	}()
	if known && d.only == "" {
		_, etcd := config.DiscoveryAt(e.Etcd)
		d.sockets = append(d.sockets, etcd...)
		d.sockets = append(d.sockets, hostOf(e.NATS))
		for _, ns := range besides(running, e) {
			cfg := o.Session.Config
			cfg.Namespace = ns
			if err := d.removeWorkers(ctx, cfg); err != nil {
				return err
			}
			d.screen.next()
		}
	}
	if err := d.removeWorkers(ctx, o.Session.Target()); err != nil {
		return err
	}
	if err := d.stopProcesses(ctx); err != nil {
		return err
	}
	return d.finish()
}

const downAction = "cannot stop the cluster"

// nothing ends a down with nothing to do.
func (d *downturn) nothing(ctx context.Context) error {
	if left, err := launch.Sweep(d.local); err != nil || len(left) > 0 {
		return &exit.Failure{Action: downAction, Err: errors.Join(err, errors.New("parts of the cluster still run")), Facts: left}
	}
	if others := d.session.RunningClusters(); len(others) > 0 {
		d.session.Out.Note("running here: %s", strings.Join(others, ", "))
	}
	text := "nothing runs"
	if paths, err := d.traces(); d.o.Purge && (err != nil || len(paths) > 0) {
		if err != nil {
			return err
		}
		lock, err := d.local.LockStart(ctx)
		if err != nil {
			return &exit.Failure{Action: purgeAction, Err: err}
		}
		err = d.purge()
		if err = errors.Join(err, lock.Release()); err != nil {
			return err
		}
		text += d.purgedText()
	}
	return d.session.Out.Answer(output.Answer{Data: d.res, Text: text + "\n"})
}

// removeWorkers declares that there shall be none and waits for the drains. A
// cluster whose stores do not answer is stopped without that.
func (d *downturn) removeWorkers(ctx context.Context, cfg config.Dynctl) error {
	c, err := client.Connect(ctx, cfg, d.session.Log)
	switch {
	case ctx.Err() != nil:
		return d.interrupted(err)
	case err != nil && d.session.External():
		return &exit.Failure{Action: downAction, Err: err}
	case err != nil:
		d.session.Out.Warn("workers are not drained: %v", err)
		return nil
	}
	defer func() { _ = c.Close() }() // before the stores end
	w, err := c.Watch(ctx)
	if err != nil {
		d.session.Out.Warn("workers are not drained: %v", err)
		return nil
	}
	defer w.Close()
	v := w.View()
	if err := d.ask(c.Workers(ctx, v)); err != nil {
		return err
	}
	for _, n := range v.Nodes {
		d.sockets = append(d.sockets, d.localSocket(n)...)
	}
	if len(v.Workers()) == 0 && (v.Topology == nil || v.Topology.Workers() == 0) {
		return d.remote(v)
	}
	if _, err := c.Declare(ctx, func(t *cluster.Topology, exists bool) error {
		t.Attached = nil
		for _, pool := range t.PoolNames() {
			view := t.In(pool)
			view.Prefill, view.Decode, view.Encode = 0, 0, 0
			t.Put(pool, view)
		}
		t.Reason = declare.Reason(d.session, "")
		return nil
	}); err != nil {
		d.session.Out.Warn("workers are not drained: %v", err)
		return nil
	}
	if err := d.drained(ctx, w, len(v.Workers())); err != nil {
		return err
	}
	return d.remote(w.View())
}

// askForAll asks before it ends several deployments, by name. Without a terminal it does not
// ask if they get time to end.
func (d *downturn) askForAll(e statedir.Endpoints, others []string, processes int) error {
	if len(others) == 0 || d.o.Deadline > 0 && !d.session.Out.Interactive() {
		return nil
	}
	all := append([]string{e.Namespace}, others...)
	if err := d.session.Out.ConfirmNamed(d.o.Yes, downAction, fmt.Sprintf("Stop all of cluster %s? Namespaces %s, %d dynamod processes.", d.session.Config.Cluster,
		human.Names(all), processes), d.session.Config.Cluster); err != nil {
		return err
	}
	d.agreed = true
	return nil
}

// ask asks before it stops workers with open requests. Without a terminal it does not ask
// if the requests get time to end.
func (d *downturn) ask(workers []cluster.Worker) error {
	work := fleet.Work{}
	for _, w := range workers {
		work.Add(w.Role, fleet.OpenSequences(w))
	}
	if work.Sum() == 0 || d.agreed {
		return nil
	}
	end := "they have " + human.Duration(d.o.Deadline) + " to end"
	switch {
	case d.o.Deadline == 0:
		end = "they are cut off"
	case !d.session.Out.Interactive(): // scripts stop clusters gently; only cutting off needs a word
		return nil
	}
	return d.session.Out.Confirm(d.o.Yes, downAction, fmt.Sprintf("Stop cluster %s? %s on %s: %s.", d.session.Config.Cluster, running(work), human.Plural(len(workers), "worker"), end))
}

func running(work fleet.Work) string {
	switch {
	case work.Images == 1 && work.Sequences == 0:
		return "1 image is in work"
	case work.Images > 0 && work.Sequences == 0:
		return work.String() + " are in work"
	case work.Sum() == 1:
		return "1 sequence runs"
	case work.Images > 0:
		return work.String() + " are in work"
	}
	return work.String() + " run"
}

// remote remembers the nodes on other machines, which stay.
func (d *downturn) remote(v client.View) error {
	processes, err := launch.List(d.local)
	if err != nil {
		return &exit.Failure{Action: downAction, Err: err}
	}
	ours := map[int]bool{}
	for _, p := range processes {
		ours[p.PID] = true
	}
	for _, n := range v.Nodes {
		if !ours[n.PID] || !d.here(n) {
			d.res.Remote = append(d.res.Remote, n.Name+" on "+n.Host)
		}
	}
	return nil
}

// hostOf is the host:port of a URL.
func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Host
	}
	return address
}

// listenGrace is the time for which an address may still answer after its processes have
// gone: the system gives free ports away at once, and whoever has one now may be brief.
const listenGrace = 2 * time.Second

// listening returns the addresses at which a process still accepts connections.
func listening(addresses []string) []string {
	left := slices.Compact(slices.Sorted(slices.Values(addresses)))
	for end := time.Now().Add(listenGrace); ; time.Sleep(100 * time.Millisecond) {
		left = slices.DeleteFunc(left, func(a string) bool { return !answers(a) })
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

func answers(address string) bool {
	if address == "" {
		return false
	}
	conn, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }() // it was only a question
	// A connection to a free port of this machine may be one with itself.
	return conn.LocalAddr().String() != conn.RemoteAddr().String()
}
