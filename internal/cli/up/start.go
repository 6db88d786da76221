package up

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/declare"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/settle"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/statedir"
)

// startPoll is the interval at which up checks whether a process that it started is there.
const startPoll = 20 * time.Millisecond

// uplift is one run of up.
type uplift struct {
	localNodes
	begin     time.Time
	c         *client.Cluster
	watch     *client.Watch
	topo      cluster.Topology
	unchanged bool // it was declared already
	earlier   bool // something else was, with workers
	screen    screen
}

// localNodes are the dynamod processes of this machine, those that this run starts and those
// that were there.
type localNodes struct {
	session   *session.Session
	o         *Options
	show      progress.Display
	led       *settle.Ledger
	fresh     bool // the stores were started by this run
	endpoints statedir.Endpoints
	processes map[string]*launch.Process // started by this run, by node name
	ended     []string                   // started by this run, and stopped by it again
	pids      map[string]int             // of all local nodes, once they have joined
}

func newUplift(s *session.Session, o *Options) *uplift {
	now := s.Out.Now()
	return &uplift{
		localNodes: localNodes{
			session: s, o: o, show: s.Out.Progress(o.Progress), led: settle.NewLedger(now),
			processes: map[string]*launch.Process{}, pids: map[string]int{},
		},
		begin:  now,
		screen: screen{known: map[string]cluster.Worker{}},
	}
}

func (u *uplift) close() {
	u.show.Close()
	if u.watch != nil {
		u.watch.Close()
	}
}

const upAction = "cannot start the cluster"

func (u *uplift) run(ctx context.Context) (Result, error) {
	if u.session.External() {
		if err := u.connect(ctx); err != nil {
			return Result{}, err
		}
		if len(u.watch.View().Nodes) == 0 {
			return Result{}, &exit.Failure{
				Action: upAction, Err: errors.New("no node is up"), Facts: []string{u.session.Stores()},
				Tries: []string{u.session.StartNode()},
			}
		}
	} else {
		if err := u.session.Startable(); err != nil {
			return Result{}, &exit.Failure{Action: upAction, Err: err}
		}
		if err := u.startLocal(ctx); err != nil {
			return Result{}, err
		}
		if err := u.joined(ctx); err != nil {
			return Result{}, err
		}
	}
	if err := u.declare(ctx); err != nil {
		return Result{}, err
	}
	if u.o.NoWait {
		return u.result(u.url(u.watch.View())), nil
	}
	return u.converge(ctx)
}

func (u *uplift) connect(ctx context.Context) (err error) {
	if u.c, err = u.session.Connect(ctx, upAction); err != nil {
		return err
	}
	if u.watch, err = u.c.Watch(ctx); err != nil {
		return &exit.Failure{Action: upAction, Err: err}
	}
	return nil
}

// startLocal starts what is missing of the local cluster, while no other dynctl
// does.
func (u *uplift) startLocal(ctx context.Context) error {
	local, err := u.session.Local()
	if err != nil {
		return err
	}
	lock, err := u.lock(ctx, local)
	if err != nil {
		return err
	}
	defer func() {
		if ctx.Err() != nil {
			u.abandon()
		}
		if err := lock.Release(); err != nil {
			u.session.Out.Warn("start lock not released: %v", err)
		}
	}()
	program, ferr := launch.Find(launch.Program, u.session.Env.Executable, u.session.Env.Variables().Get("PATH"))
	switch u.endpoints, err = local.Endpoints(); {
	case errors.Is(err, statedir.ErrNotRunning):
		if ferr != nil {
			return noProgram(ferr)
		}
		if err := u.startFirst(ctx, local, program); err != nil {
			return err
		}
	case err != nil:
		return &exit.Failure{Action: upAction, Err: err}
	}
	u.showStores()
	if err := u.connect(ctx); err != nil {
		return err
	}
	now, _, err := declare.Declared(ctx, u.c)
	if err != nil {
		return &exit.Failure{Action: upAction, Err: err}
	}
	next, err := u.o.desired(now)
	if err != nil {
		return err
	}
	if !u.fresh && u.o.given("port") && !u.session.Beside(u.endpoints) {
		u.session.Out.Note("--port has no effect: the frontend of %s runs already", u.session.Config.Cluster)
	}
	if !u.fresh && u.o.given("advertise-host") && u.o.Host != u.endpoints.Host {
		u.session.Out.Note("--advertise-host has no effect on %s, which runs already: dynctl down, then dynctl up --advertise-host %s", u.endpoints.Node, u.o.Host)
	}
	return u.startAgents(local, program, ferr, next.Topology)
}

// lock waits for another dynctl that starts the same cluster.
func (u *localNodes) lock(ctx context.Context, local statedir.Cluster) (*statedir.Lock, error) {
	for {
		short, cancel := context.WithTimeout(ctx, settle.LookEvery)
		lock, err := local.LockStart(short)
		cancel()
		var held *statedir.LockedError
		switch {
		case err == nil:
			return lock, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !errors.As(err, &held):
			return nil, &exit.Failure{Action: upAction, Err: err, Tries: []string{"dynctl up --state-dir DIR"}}
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
func (u *localNodes) startFirst(ctx context.Context, local statedir.Cluster, program string) error {
	u.fresh = true
	n, err := local.Node(nodeName(1))
	if err != nil {
		return err
	}
	pid, held := n.Holder()
	if !held {
		// What a killed dynamod left behind would be read again and again.
		if err := local.RemoveEndpoints(); err != nil {
			return &exit.Failure{Action: upAction, Err: err}
		}
		next, err := u.o.desired(cluster.Revision{})
		if err != nil {
			return err
		}
		roles := nodeRoles(u.o.Agents, next.Topology.Prefill, next.Topology.Decode)
		p, err := launch.Start(launch.Options{Program: program, Args: u.o.args().first(roles[0]), Environ: u.session.Env.Environ, Node: n})
		if err != nil {
			return &exit.Failure{Action: upAction, Err: err, Tries: []string{"dynctl up --state-dir DIR"}}
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
			return &exit.Failure{Action: upAction, Err: err}
		}
		if err := u.crashed(); err != nil {
			return err
		}
		if held && time.Now().After(giveUp) {
			return &exit.Failure{
				Action: upAction, Err: fmt.Errorf("%s runs already, as process %d, and does not say where its stores are", n.Name, pid),
				Facts: []string{"it may use stores of its own choice"}, Tries: []string{"dynctl up --etcd-endpoints host:port", "dynctl down"},
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

// abandonGrace is how long processes that are not needed any more may take to end.
const abandonGrace = 5 * time.Second

// abandon ends the processes that this run has started, before anybody could know of them:
// no command finds a cluster whose stores are not up, and nobody asked for nodes alone.
func (u *localNodes) abandon() {
	for _, name := range slices.Sorted(maps.Keys(u.processes)) {
		if err := u.processes[name].End(abandonGrace); err != nil {
			u.session.Out.Warn("%s not stopped: %v", name, err)
			continue
		}
		delete(u.processes, name)
		u.ended = append(u.ended, name)
	}
}

// crashed returns why a process that was started has ended, if one has.
func (u *localNodes) crashed() error {
	for name, p := range u.processes {
		select {
		case <-p.Exited():
		default:
			continue
		}
		lines := p.Complaint()
		f := &exit.Failure{Action: "cannot start " + name, Facts: []string{"its output: " + p.Node.Output()}}
		switch {
		case len(lines) > 0:
			f.Err = errors.New(lines[0])
			f.Facts = slices.Concat(lines[1:], f.Facts)
		case p.Err() != nil:
			f.Err = fmt.Errorf("dynamod ended: %w", p.Err())
		default:
			f.Err = errors.New("dynamod ended")
		}
		u.hint(f)
		return f
	}
	return nil
}

// hint adds what may help to the last words of a dynamod. Only text crosses from
// that process to this one.
func (u *localNodes) hint(f *exit.Failure) {
	text := strings.ToLower(f.Err.Error())
	switch {
	case strings.Contains(text, "in use") && strings.Contains(text, "director"):
		f.Tries = []string{"dynctl down"}
	case strings.Contains(text, "in use"):
		f.Tries = []string{"dynctl up --port " + strconv.Itoa(FreePort(u.o.Port+1))}
	case strings.Contains(text, "permission denied"), strings.Contains(text, "read-only file system"), strings.Contains(text, "no space left"):
		f.Tries = []string{"dynctl up --state-dir DIR"}
	case strings.Contains(text, "running already"), strings.Contains(text, "is locked"):
		f.Tries = []string{"dynctl ps", "dynctl down"}
	}
}

// FreePort returns the first port from p on that no process listens on.
func FreePort(p int) int {
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
func (u *localNodes) startAgents(local statedir.Cluster, program string, ferr error, next cluster.Topology) error {
	roles := nodeRoles(u.o.Agents, next.Prefill, next.Decode)
	first, name := 2, nodeName
	if u.session.Beside(u.endpoints) {
		first, name = 1, func(i int) string { return agentName(u.session.Config.Namespace, i) }
	}
	for i := first; i <= u.o.Agents; i++ {
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
			Program: program, Args: u.o.args().agent(n.Name, roles[i-1], u.endpoints), Environ: u.session.Env.Environ, Node: n,
		})
		if err != nil {
			return &exit.Failure{Action: "cannot start " + n.Name, Err: err}
		}
		u.started(p)
	}
	return nil
}

// started remembers a process, and since when.
func (u *localNodes) started(p *launch.Process) {
	u.processes[p.Node.Name] = p
	u.led.Note("node "+p.Node.Name, false, u.session.Out.Now())
}
