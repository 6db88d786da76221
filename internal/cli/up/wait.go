package up

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/cli/settle"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// joined waits until every local node that runs is in the cluster.
func (u *uplift) joined(ctx context.Context) error {
	local, err := u.session.Local()
	if err != nil {
		return err
	}
	nodes, err := local.Nodes()
	if err != nil {
		return &exit.Failure{Action: upAction, Err: err}
	}
	for name, p := range u.processes {
		u.pids[name] = p.PID
	}
	for _, n := range nodes {
		if u.processes[n.Name] != nil {
			continue // looking at its lock could be just in its way to take it
		}
		if ns := n.Namespace(); ns != "" && ns != u.c.Namespace {
			continue
		}
		if pid, held := n.Holder(); held {
			u.pids[n.Name] = pid
		}
	}
	host, _ := os.Hostname() // as nodes publish it
	return u.watch.Until(ctx, settle.LookEvery, func(v client.View) (bool, error) {
		if err := u.crashed(); err != nil {
			return false, err
		}
		there := map[string]bool{}
		for _, n := range v.Nodes {
			if n.Host == host && u.pids[n.Name] == n.PID {
				there[n.Name] = true
			} else if n.Host == host && !launch.Alive(n.PID) {
				// Left behind by a process that was killed.
				if err := u.c.Forget(ctx, v, n); err != nil {
					u.session.Log.Warn("dead node not removed", "node", n.Name, "error", err)
				}
			}
		}
		u.show.Show(u.frame(v, there, settle.Standing{}))
		return len(there) == len(u.pids), nil
	})
}

// trust reports whether a node is what it seems: in a local cluster, that its
// process lives.
func (u *localNodes) trust(v client.View) func(string) bool {
	if u.session.External() {
		return nil
	}
	host, _ := os.Hostname()
	dead := map[string]bool{}
	for _, n := range v.Nodes {
		pid, ours := u.pids[n.Name]
		dead[n.ID] = n.Host == host && (ours && pid != n.PID || !launch.Alive(n.PID))
	}
	return func(id string) bool {
		bad, known := dead[id]
		return known && !bad
	}
}

// converge waits until the cluster is as declared and answers.
func (u *uplift) converge(ctx context.Context) (Result, error) {
	before := settle.Restarts(u.watch.View())
	if u.fresh {
		clear(before) // what workers of the last run counted is over
	}
	var unplaced settle.Patience
	url := ""
	err := u.watch.Until(ctx, settle.LookEvery/2, func(v client.View) (bool, error) {
		g := settle.Goal{Topo: u.topo, Trust: u.trust(v)}
		s := g.Judge(v)
		ready := s.Serving() && v.Topology != nil && v.Topology.Generation >= u.topo.Generation
		up, why := false, ""
		if ready {
			if url = u.url(v); url != "" && u.topo.Decode > 0 {
				why, u.screen.barred = listed(ctx, u.session, url, u.topo.Model.Name)
			}
			up = why == ""
		} else {
			why = "for " + strings.Join(s.Missing(), " and ")
		}
		u.screen.front, u.screen.frontUp, u.screen.url = why, up, url
		u.show.Show(u.frame(v, nil, s))
		if t := v.Topology; t != nil && t.Generation > u.topo.Generation {
			return false, &exit.Failure{Action: upAction, Err: fmt.Errorf("%s declared another topology meanwhile", human.OrDash(t.UpdatedBy)), Tries: []string{"dynctl ps"}}
		}
		if err := u.crashed(); err != nil {
			return false, err
		}
		if !up {
			if w, f := s.Impossible(before); f != nil {
				return false, u.startFailed(f, w, s)
			}
		}
		if who, reason := s.Homeless(); unplaced.Over(who != "" && (!u.session.External() || s.Follows(who))) {
			return false, &exit.Failure{Action: "cannot place " + who, Err: errors.New(reason), Facts: s.GoOn(), Tries: append(u.takeBack(), "dynctl ps --nodes -o wide")}
		}
		return up, nil
	})
	if err != nil {
		return Result{}, err
	}
	return u.result(url), nil
}

// startFailed is the error about a worker that cannot be what was declared. What was before
// can be declared again; with nothing before it, less may fit.
func (u *uplift) startFailed(f *exit.Failure, w cluster.Worker, s settle.Standing) error {
	tries := u.takeBack()
	if !u.earlier && strings.Contains(w.Reason, "memory") {
		if n := u.topo.Count(w.Role); n > 1 || w.Role != cluster.RoleDecode {
			tries = append(tries, fmt.Sprintf("dynctl up --%s %d", w.Role, n-1))
		}
		if n := fewerBlocks(u.topo.Engine.KVBlocks, s); n > 0 && !strings.Contains(w.Reason, "--kv-blocks") { // the agent knows better
			tries = append(tries, fmt.Sprintf("dynctl up --kv-blocks %d", n))
		}
	}
	f.Tries = append(tries, f.Tries...)
	return f
}

// fewerBlocks is a pool that is likely to fit: half of what was wanted, or of what
// others have; 0 when nothing is known.
func fewerBlocks(wanted int, s settle.Standing) int {
	blocks := wanted
	for _, w := range s.Workers {
		if blocks == 0 {
			blocks = w.Stats.KVTotal
		}
	}
	return blocks / 2
}

// takeBack is the order that takes a change back, if there was something else before.
func (u *uplift) takeBack() []string {
	if u.earlier {
		return []string{"dynctl rollback"}
	}
	return nil
}

// goesOn returns the message about what continues after ctrl-c.
func (u *uplift) goesOn() string {
	switch {
	case u.topo.Generation > 0:
		return "cluster " + u.session.Config.Cluster + " goes on starting"
	case len(u.ended) > 0:
		return "what it had started was stopped again: " + human.Names(u.ended)
	case len(u.processes) > 0:
		return "its processes go on starting, no workers were declared: " + human.Names(slices.Sorted(maps.Keys(u.processes)))
	}
	return "nothing was changed"
}

func (u *uplift) timedOut() error {
	f := &exit.Failure{
		Action: fmt.Sprintf("cluster %s is not ready after %s", u.session.Config.Cluster, human.Duration(u.o.Timeout)), Err: errors.New("it waits " + human.OrDash(u.screen.front)),
		Code: exit.Deadline, Facts: []string{u.goesOn()}, Tries: []string{"dynctl ps", "dynctl logs", "dynctl down"},
	}
	if u.screen.front == "" {
		f.Err = errors.New("it waits for its nodes")
	}
	return f
}
