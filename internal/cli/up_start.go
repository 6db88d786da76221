package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/statedir"
)

// startPoll is how often up looks whether a process that it started is there.
const startPoll = 20 * time.Millisecond

// uplift is one run of up.
type uplift struct {
	inv   *invocation
	o     *upCommand
	show  progress.Display
	begin time.Time
	led   *ledger

	fresh     bool // the stores were started by this run
	endpoints statedir.Endpoints
	processes map[string]*launch.Process // started by this run, by node name
	pids      map[string]int             // of all local nodes, once they have joined
	c         *client.Cluster
	watch     *client.Watch
	topo      cluster.Topology
	unchanged bool // it was declared already
	earlier   bool // something else was, with workers
	screen    upScreen
}

func newUplift(inv *invocation, o *upCommand) *uplift {
	now := inv.env.Now()
	return &uplift{
		inv: inv, o: o, show: inv.progress(o.mode), begin: now, led: newLedger(now),
		processes: map[string]*launch.Process{}, pids: map[string]int{},
		screen: upScreen{known: map[string]cluster.Worker{}},
	}
}

func (u *uplift) close() {
	u.show.Close()
	if u.watch != nil {
		u.watch.Close()
	}
}

const upAction = "cannot start the cluster"

func (u *uplift) run(ctx context.Context) (upResult, error) {
	if u.inv.external() {
		if err := u.connect(ctx); err != nil {
			return upResult{}, err
		}
		if len(u.watch.View().Nodes) == 0 {
			return upResult{}, &failure{
				action: upAction, err: errors.New("no node is up"), facts: []string{"etcd: " + strings.Join(u.inv.cfg.Etcd.Endpoints, ", ")},
				tries: []string{"dynamod --etcd-endpoints ... --nats-url ...   on each node"},
			}
		}
	} else {
		if err := u.startLocal(ctx); err != nil {
			return upResult{}, err
		}
		if err := u.joined(ctx); err != nil {
			return upResult{}, err
		}
	}
	if err := u.declare(ctx); err != nil {
		return upResult{}, err
	}
	if u.o.noWait {
		return u.result(u.url(u.watch.View())), nil
	}
	return u.converge(ctx)
}

func (u *uplift) connect(ctx context.Context) (err error) {
	if u.c, err = u.inv.connect(ctx, upAction); err != nil {
		return err
	}
	if u.watch, err = u.c.Watch(ctx); err != nil {
		return &failure{action: upAction, err: err}
	}
	return nil
}

// startLocal starts what is missing of the local cluster, while no other dynctl
// does.
func (u *uplift) startLocal(ctx context.Context) error {
	local, err := u.inv.local()
	if err != nil {
		return err
	}
	lock, err := u.lock(ctx, local)
	if err != nil {
		return err
	}
	defer func() {
		if err := lock.Release(); err != nil {
			u.inv.warn("start lock not released: %v", err)
		}
	}()
	program, ferr := launch.Find(u.inv.env.Executable, u.inv.variables().Get("PATH"))
	switch u.endpoints, err = local.Endpoints(); {
	case errors.Is(err, statedir.ErrNotRunning):
		if ferr != nil {
			return noProgram(ferr)
		}
		if err := u.startFirst(ctx, local, program); err != nil {
			return err
		}
	case err != nil:
		return &failure{action: upAction, err: err}
	}
	u.showStores()
	if err := u.connect(ctx); err != nil {
		return err
	}
	now, _, err := declared(ctx, u.c)
	if err != nil {
		return &failure{action: upAction, err: err}
	}
	next, err := u.o.desired(now, u.fresh)
	if errors.Is(err, errOtherModel) {
		return u.o.otherModel(u.inv.cfg.Cluster, now.Topology)
	}
	if err != nil {
		return err
	}
	if !u.fresh && u.o.given("port") && !u.inv.beside(u.endpoints) {
		u.inv.note("--port has no effect: the frontend of %s runs already", u.inv.cfg.Cluster)
	}
	if !u.fresh && u.o.given("advertise-host") && u.o.host != u.endpoints.Host {
		u.inv.note("--advertise-host has no effect on %s, which runs already: dynctl down, then dynctl up --advertise-host %s", u.endpoints.Node, u.o.host)
	}
	return u.startAgents(local, program, ferr, next.Topology)
}

// lock waits for another dynctl that starts the same cluster.
func (u *uplift) lock(ctx context.Context, local statedir.Cluster) (*statedir.Lock, error) {
	for {
		short, cancel := context.WithTimeout(ctx, lookEvery)
		lock, err := local.LockStart(short)
		cancel()
		var held *statedir.LockedError
		switch {
		case err == nil:
			return lock, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !errors.As(err, &held):
			return nil, &failure{action: upAction, err: err, tries: []string{"dynctl up --state-dir DIR"}}
		}
		u.show.Show(progress.Screen{
			Operation: "up", Subject: local.Name, Title: local.Name + "  waiting",
			Rows: []progress.Row{{
				Item: "start-lock", State: progress.Running, Word: "waiting", Cells: []string{"another dynctl"},
				Detail: fmt.Sprintf("process %d starts this cluster", held.PID), Line: fmt.Sprintf("waiting for process %d, which starts this cluster", held.PID),
			}},
		})
	}
}

// startFirst starts the node with the stores and waits until it says where they
// are.
func (u *uplift) startFirst(ctx context.Context, local statedir.Cluster, program string) error {
	u.fresh = true
	n, err := local.Node(nodeName(1))
	if err != nil {
		return err
	}
	pid, held := n.Holder()
	if !held {
		// What a killed dynamod left behind would be read again and again.
		if err := local.RemoveEndpoints(); err != nil {
			return &failure{action: upAction, err: err}
		}
		next, err := u.o.desired(cluster.Revision{}, true)
		if err != nil {
			return err
		}
		roles := nodeRoles(u.o.agents, next.Topology.Prefill, next.Topology.Decode)
		p, err := launch.Start(launch.Options{Program: program, Args: u.o.firstArgs(u.inv, roles[0]), Environ: u.inv.env.Environ, Node: n})
		if err != nil {
			return &failure{action: upAction, err: err, tries: []string{"dynctl up --state-dir DIR"}}
		}
		u.started(p)
		pid = p.PID
	}
	giveUp := time.Now().Add(5 * time.Second) // for a process that was there before
	tick := time.NewTicker(startPoll)
	defer tick.Stop()
	for {
		if u.endpoints, err = local.Endpoints(); err == nil {
			return nil
		} else if !errors.Is(err, statedir.ErrNotRunning) {
			return &failure{action: upAction, err: err}
		}
		if err := u.crashed(); err != nil {
			return err
		}
		if held && time.Now().After(giveUp) {
			return &failure{
				action: upAction, err: fmt.Errorf("%s runs already, as process %d, and does not say where its stores are", n.Name, pid),
				facts: []string{"it may use stores of its own choice"}, tries: []string{"dynctl up --etcd-endpoints host:port", "dynctl down"},
			}
		}
		u.showStores()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// crashed returns why a process that was started has ended, if one has.
func (u *uplift) crashed() error {
	for name, p := range u.processes {
		select {
		case <-p.Exited():
		default:
			continue
		}
		lines := p.Complaint()
		f := &failure{action: "cannot start " + name, facts: []string{"its output: " + p.Node.Output()}}
		switch {
		case len(lines) > 0:
			f.err = errors.New(lines[0])
			f.facts = slices.Concat(lines[1:], f.facts)
		case p.Err() != nil:
			f.err = fmt.Errorf("dynamod ended: %w", p.Err())
		default:
			f.err = errors.New("dynamod ended")
		}
		u.hint(f)
		return f
	}
	return nil
}

// hint adds what may help to the last words of a dynamod. Only text crosses from
// that process to this one.
func (u *uplift) hint(f *failure) {
	text := strings.ToLower(f.err.Error())
	switch {
	case strings.Contains(text, "in use") && strings.Contains(text, "director"):
		f.tries = []string{"dynctl down"}
	case strings.Contains(text, "in use"):
		f.tries = []string{"dynctl up --port " + strconv.Itoa(freePort(u.o.port+1))}
	case strings.Contains(text, "permission denied"), strings.Contains(text, "read-only file system"), strings.Contains(text, "no space left"):
		f.tries = []string{"dynctl up --state-dir DIR"}
	case strings.Contains(text, "running already"), strings.Contains(text, "is locked"):
		f.tries = []string{"dynctl ps", "dynctl down"}
	}
}

// freePort returns the first port from p on that nobody listens on.
func freePort(p int) int {
	for q := p; q < p+100 && q <= 65535; q++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(q)))
		if err == nil {
			_ = l.Close() // it was only a question
			return q
		}
	}
	return p
}

// startAgents starts the nodes that do not run beside the one with the stores. Another
// namespace than that one's has nodes of its own.
func (u *uplift) startAgents(local statedir.Cluster, program string, ferr error, next cluster.Topology) error {
	roles := nodeRoles(u.o.agents, next.Prefill, next.Decode)
	first, name := 2, nodeName
	if u.inv.beside(u.endpoints) {
		first, name = 1, func(i int) string { return agentName(u.inv.cfg.Namespace, i) }
	}
	for i := first; i <= u.o.agents; i++ {
		n, err := local.Node(name(i))
		if err != nil {
			return err
		}
		if _, held := n.Holder(); held {
			continue
		}
		if ferr != nil {
			return noProgram(ferr)
		}
		p, err := launch.Start(launch.Options{
			Program: program, Args: u.o.agentArgs(u.inv, n.Name, roles[i-1], u.endpoints), Environ: u.inv.env.Environ, Node: n,
		})
		if err != nil {
			return &failure{action: "cannot start " + n.Name, err: err}
		}
		u.started(p)
	}
	return nil
}

// started remembers a process, and since when.
func (u *uplift) started(p *launch.Process) {
	u.processes[p.Node.Name] = p
	u.led.note("node "+p.Node.Name, false, u.inv.env.Now())
}
