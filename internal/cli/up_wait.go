package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// joined waits until every local node that runs is in the cluster.
func (u *uplift) joined(ctx context.Context) error {
	local, err := u.inv.local()
	if err != nil {
		return err
	}
	nodes, err := local.Nodes()
	if err != nil {
		return &failure{action: upAction, err: err}
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
	return u.watch.Until(ctx, lookEvery, func(v client.View) (bool, error) {
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
					u.inv.log.Warn("dead node not removed", "node", n.Name, "error", err)
				}
			}
		}
		u.show.Show(u.frame(v, there, standing{}))
		return len(there) == len(u.pids), nil
	})
}

// trust reports whether a node is what it seems: in a local cluster, that its
// process lives.
func (u *uplift) trust(v client.View) func(string) bool {
	if u.inv.external() {
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

// declare writes down what is wanted.
func (u *uplift) declare(ctx context.Context) error {
	var seen cluster.Topology
	r, err := u.c.Apply(ctx, func(r *cluster.Revision, _ bool) error {
		seen = r.Topology
		next, err := u.o.desired(*r, u.fresh)
		if err != nil {
			return err
		}
		if err := u.o.validate(next); err != nil {
			return &usageError{text: flagText(err)}
		}
		*r = next
		return nil
	})
	u.topo, u.unchanged = r.Topology, r.Topology.Generation == seen.Generation
	var usage *usageError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errOtherModel):
		return u.o.otherModel(u.c.Name, seen)
	case errors.As(err, &usage):
		return err
	}
	return &failure{action: "cannot declare the topology", err: err}
}

// patience is how long a worker of a local cluster may find no place: all nodes are
// there, so that nothing will change by itself.
const patience = 2 * time.Second

// converge waits until the cluster is as declared and answers.
func (u *uplift) converge(ctx context.Context) (upResult, error) {
	before := restarts(u.watch.View())
	if u.fresh {
		clear(before) // what workers of the last run counted is over
	}
	unplaced := time.Time{}
	url := ""
	err := u.watch.Until(ctx, lookEvery/2, func(v client.View) (bool, error) {
		g := goal{topo: u.topo, trust: u.trust(v)}
		s := g.judge(v)
		ready := s.serving() && v.Topology != nil && v.Topology.Generation >= u.topo.Generation
		up, why := false, ""
		if ready {
			if url = u.url(v); url != "" && u.topo.Decode > 0 {
				why = u.listed(ctx, url)
			}
			up = why == ""
		} else {
			why = "for " + strings.Join(s.missing(), " and ")
		}
		u.screen.front, u.screen.frontUp, u.screen.url = why, up, url
		u.show.Show(u.frame(v, nil, s))
		if t := v.Topology; t != nil && t.Generation > u.topo.Generation {
			return false, &failure{action: upAction, err: fmt.Errorf("%s declared another topology meanwhile", orDash(t.UpdatedBy)), tries: []string{"dynctl ps"}}
		}
		if err := u.crashed(); err != nil {
			return false, err
		}
		if w, bad := s.failing(before); bad {
			return false, u.startFailed(w, s)
		}
		if who, reason := u.homeless(v, s); who == "" || u.inv.external() {
			unplaced = time.Time{}
		} else if unplaced.IsZero() {
			unplaced = time.Now()
		} else if time.Since(unplaced) > patience {
			return false, &failure{action: "cannot place " + who, err: errors.New(reason), tries: []string{"dynctl ps --nodes -o wide"}}
		}
		return up, nil
	})
	if err != nil {
		return upResult{}, err
	}
	return u.result(url), nil
}

// homeless names workers that no node can take, and why: one that has no place, or those
// of a role that keep theirs because the wanted devices are nowhere.
func (u *uplift) homeless(v client.View, s standing) (who, reason string) {
	for _, w := range s.workers {
		if w.unplaced {
			return w.Name, w.Reason
		}
	}
	for _, r := range cluster.Roles {
		_, engine := u.topo.Specs(r)
		if s.short[r] > 0 && !slices.ContainsFunc(v.Nodes, func(n cluster.Node) bool {
			return slices.ContainsFunc(n.Devices, func(d cluster.Device) bool { return engine.RunsOn(d.ID) })
		}) {
			return string(r) + " workers", "no node has a device " + engine.WantedDevices()
		}
	}
	return "", ""
}

// startFailed is the error about a worker that fails again and again.
func (u *uplift) startFailed(w cluster.Worker, s standing) error {
	f := &failure{action: w.Name + " did not start", err: errors.New(w.Reason), tries: []string{"dynctl logs " + w.Name}}
	if strings.Contains(w.Reason, "memory") {
		fewer := fmt.Sprintf("dynctl up --decode %d", max(u.topo.Decode-1, 1))
		if w.Role == cluster.RolePrefill {
			fewer = fmt.Sprintf("dynctl up --prefill %d", u.topo.Prefill-1)
		}
		tries := []string{fewer}
		if n := u.fewerBlocks(s); n > 0 && !strings.Contains(w.Reason, "--kv-blocks") { // the agent knows better
			tries = append(tries, fmt.Sprintf("dynctl up --kv-blocks %d", n))
		}
		f.tries = append(tries, f.tries...)
	}
	f.facts = append(f.facts, fmt.Sprintf("it failed %s; its agent goes on trying", plural(w.Restarts, "time")))
	return f
}

// fewerBlocks is a pool that is likely to fit: half of what was wanted, or of what
// others have; 0 when nothing is known.
func (u *uplift) fewerBlocks(s standing) int {
	blocks := u.topo.Engine.KVBlocks
	for _, w := range s.workers {
		if blocks == 0 {
			blocks = w.Stats.KVTotal
		}
	}
	return blocks / 2
}

// url is where clients reach the cluster: the frontend of the first node that has
// one; empty when none has.
func (u *uplift) url(v client.View) string {
	nodes := slices.SortedFunc(slices.Values(v.Nodes), func(a, b cluster.Node) int { return nodeOrder(a.Name, b.Name) })
	trust := u.trust(v)
	for _, n := range nodes {
		if n.FrontendURL != "" && (trust == nil || trust(n.ID)) {
			return strings.TrimSuffix(n.FrontendURL, "/")
		}
	}
	return ""
}

// frontendTimeout bounds one question to a frontend.
const frontendTimeout = 500 * time.Millisecond

// listed asks a frontend for its models and says what is missing.
func (u *uplift) listed(ctx context.Context, url string) string {
	ctx, cancel := context.WithTimeout(ctx, frontendTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/models", http.NoBody)
	if err != nil {
		return "its address is no URL: " + url
	}
	if key := u.inv.variables().Get("DYNAMOD_FRONTEND_API_KEY"); key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	transport := &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return "for an answer at " + url
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		u.screen.needsKey = true // it answers, and says nothing to us
		return ""
	default:
		return fmt.Sprintf("for an answer at %s; so far status %d", url, resp.StatusCode)
	}
	var list struct {
		Data []struct{ ID string } `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return "for a list of models at " + url
	}
	for _, m := range list.Data {
		if m.ID == u.topo.Model.Name {
			return ""
		}
	}
	return "until it lists " + u.topo.Model.Name
}

// goesOn says what happens when nobody watches.
func (u *uplift) goesOn() string {
	switch {
	case u.topo.Generation > 0:
		return "cluster " + u.inv.cfg.Cluster + " goes on starting"
	case len(u.processes) > 0:
		return "its processes go on starting, no workers were declared: " + nameList(slices.Sorted(maps.Keys(u.processes)))
	}
	return "nothing was changed"
}

func (u *uplift) timedOut() error {
	f := &failure{
		action: fmt.Sprintf("cluster %s is not ready after %s", u.inv.cfg.Cluster, duration(u.o.timeout)), err: errors.New("it waits " + orDash(u.screen.front)),
		code: exitDeadline, facts: []string{u.goesOn()}, tries: []string{"dynctl ps", "dynctl logs", "dynctl down"},
	}
	if u.screen.front == "" {
		f.err = errors.New("it waits for its nodes")
	}
	return f
}
