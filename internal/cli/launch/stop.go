package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/dynctl/dynctl/internal/statedir"
)

// Running is a dynamod that holds the lock of its node.
type Running struct {
	Node statedir.Node
	PID  int
}

// List returns the running dynamod processes of a cluster, sorted by node.
func List(c statedir.Cluster) ([]Running, error) {
	nodes, err := c.Nodes()
	if err != nil {
		return nil, err
	}
	var out []Running
	for _, n := range nodes {
		if pid, held := n.Holder(); held && pid > 0 {
			out = append(out, Running{n, pid})
		}
	}
	return out, nil
}

// Ending is the progress of stopping one process.
type Ending struct {
	Running
	Gone bool
	// Hurried is set when it was told not to wait for requests any longer, Killed
	// when it was killed.
	Hurried, Killed bool
	// Took is the time since the stop began.
	Took time.Duration
}

// Times limit [Stop].
type Times struct {
	// Hurry is when processes are told to leave what they still wait for.
	Hurry time.Time
	// Grace is the time left until the processes are killed.
	Grace time.Duration
}

// stopPoll is the interval at which Stop checks whether a process has ended.
const stopPoll = 20 * time.Millisecond

// Stop asks all given processes to end and returns when they have, or with the
// cause of ctx. A process that gets SIGTERM finishes its requests; a second one
// makes it hurry; after the grace it is killed. show, if not nil, sees how far they
// are at every step.
func Stop(ctx context.Context, processes []Running, times Times, show func([]Ending)) ([]Ending, error) {
	begin := time.Now()
	endings := make([]Ending, len(processes))
	for i, p := range processes {
		endings[i].Running = p
		if pid, held := p.Node.Holder(); !held || pid != p.PID {
			endings[i].Gone = !alive(p.PID) || held
			continue
		}
		if err := send(p.PID, syscall.SIGTERM); err != nil {
			return endings, fmt.Errorf("stop %s: %w", p.Node.Name, err)
		}
	}
	tick := time.NewTicker(stopPoll)
	defer tick.Stop()
	for {
		open := false
		now := time.Now()
		for i := range endings {
			if err := endings[i].advance(now, begin, times); err != nil {
				return endings, err
			}
			open = open || !endings[i].Gone
		}
		if show != nil {
			show(endings)
		}
		if !open {
			return endings, nil
		}
		select {
		case <-ctx.Done():
			return endings, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// advance looks after one process. It was seen alive a moment ago, so its id has
// not gone to another one.
func (e *Ending) advance(now, begin time.Time, t Times) error {
	if e.Gone {
		return nil
	}
	e.Took = now.Sub(begin)
	if pid, held := e.Node.Holder(); (!held || pid != e.PID) && !alive(e.PID) {
		e.Gone = true
		return nil
	}
	var err error
	switch {
	case !e.Hurried && now.After(t.Hurry):
		e.Hurried = true
		err = send(e.PID, syscall.SIGTERM)
	case !e.Killed && now.After(t.Hurry.Add(t.Grace)):
		e.Killed = true
		err = send(e.PID, syscall.SIGKILL)
	}
	if err != nil {
		return fmt.Errorf("stop %s: %w", e.Node.Name, err)
	}
	return nil
}

// send treats a process that ended meanwhile as signaled.
func send(pid int, s syscall.Signal) error {
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal process %d: %w", pid, err)
	}
	return nil
}

// alive reports whether a process exists and has not ended. One that waits for its
// parent to take notice has.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true // no /proc here
	}
	// pid (name) state ...; the name may contain anything, parentheses too.
	if i := bytes.LastIndexByte(stat, ')'); i >= 0 && i+2 < len(stat) {
		return stat[i+2] != 'Z' && stat[i+2] != 'X'
	}
	return true
}

// Alive reports whether a process of this machine has not ended.
func Alive(pid int) bool { return pid > 0 && alive(pid) }

// Sweep removes files that killed processes of a cluster left behind: locks that no process
// holds and an address file without its writer. It returns what it could not
// remove, and what still runs.
func Sweep(c statedir.Cluster) (left []string, err error) {
	nodes, err := c.Nodes()
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		l, err := n.Lock()
		var held *statedir.LockedError
		switch {
		case errors.As(err, &held):
			left = append(left, fmt.Sprintf("process %d still runs %s", held.PID, n.Name))
		case err != nil:
			left = append(left, err.Error())
		default:
			if err := l.Release(); err != nil {
				left = append(left, err.Error())
			}
		}
	}
	if len(left) > 0 {
		return left, nil
	}
	if _, err := c.Endpoints(); errors.Is(err, statedir.ErrNotRunning) {
		if err := c.RemoveEndpoints(); err != nil {
			left = append(left, err.Error())
		}
	}
	return left, nil
}
