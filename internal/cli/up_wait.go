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
	"github.com/dynctl/dynctl/internal/inspect"
	"github.com/dynctl/dynctl/internal/topofile"
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

// announce says how what is declared changes, before it does, and refuses what cannot be.
func (u *uplift) announce(ctx context.Context) error {
	now, ever, err := declared(ctx, u.c)
	if err != nil {
		return &failure{action: upAction, err: err}
	}
	next, err := u.o.desired(now, u.fresh)
	if err != nil {
		return nil //nolint:nilerr // declare says so
	}
	from, to := now.Topology, next.Topology
	changes := topofile.Diff(topofile.Of(now), topofile.Of(next))
	serving := from.Prefill+from.Decode > 0
	if len(changes) > 0 {
		if err := u.possible(ctx, now.Topology, to); err != nil {
			return err
		}
	}
	switch {
	case !ever || !serving || !u.inv.prose() || u.inv.quiet:
	case len(changes) > 0:
		u.pause(fmt.Sprintf("%s changes from %s to %s, generation %d to %d:\n%s%s", u.c.Name, shape(from.Prefill, from.Decode), shape(to.Prefill, to.Decode),
			from.Generation, from.Generation+1, changeLines(changes), strings.Join(effects(from, to), "\n")))
	case u.fresh:
		u.pause(fmt.Sprintf("%s takes up what was declared before it ended, generation %d: %s, model %s", u.c.Name, from.Generation, shape(from.Prefill, from.Decode), modelPhrase(from.Model)))
	}
	return nil
}

// pause prints lines that are no progress.
func (u *uplift) pause(text string) {
	u.show.Close()
	for line := range strings.Lines(text) {
		u.inv.tell("%s", strings.TrimRight(line, "\n"))
	}
	u.show = u.inv.progress(u.o.mode)
}

// possible refuses a topology that the nodes which are up cannot carry out, or a model of
// this machine that nothing can serve.
func (u *uplift) possible(ctx context.Context, from, to cluster.Topology) error {
	f := &failure{action: "cannot declare the topology", err: errors.New("it cannot be carried out")}
	if from.Prefill+from.Decode > 0 { // else nothing is lost by waiting for nodes
		f.facts = u.watch.View().Impossible(to)
	}
	if path := to.Model.Path; len(f.facts) == 0 && path != "" && !u.inv.external() && (path != from.Model.Path || to.Engine != from.Engine) {
		f.facts = unservable(inspect.Look(ctx, path), to)
	}
	switch {
	case len(f.facts) == 0:
		return nil
	case from.Prefill+from.Decode > 0:
		f.facts = append(f.facts, "nothing was changed")
	}
	f.tries = []string{"dynctl ps --nodes -o wide"}
	if to.Model.Path != "" {
		f.tries = append(f.tries, "dynctl model inspect "+shellQuote(to.Model.Path))
	}
	return f
}

// unservable says why a model cannot be served as a topology asks.
func unservable(r inspect.Report, t cluster.Topology) (out []string) {
	for _, p := range r.Problems {
		out = append(out, "model: "+p)
	}
	if len(out) > 0 {
		return out
	}
	for _, role := range cluster.Roles {
		if t.Count(role) == 0 {
			continue
		}
		_, e := t.Specs(role)
		if e.MaxModelLen > r.Context {
			out = append(out, fmt.Sprintf("%s workers: max_model_len: %d is not between 1 and the model's %d", role, e.MaxModelLen, r.Context))
		}
		if n := e.TensorParallel; n > 1 && (r.Shape.Heads%n != 0 || r.Shape.KVHeads%n != 0) {
			out = append(out, fmt.Sprintf("%s workers: tensor_parallel: %d ranks cannot share %d query heads and %d KV heads evenly", role, n, r.Shape.Heads, r.Shape.KVHeads))
		}
	}
	return out
}

// declare writes down what is wanted.
func (u *uplift) declare(ctx context.Context) error {
	if err := u.announce(ctx); err != nil {
		return err
	}
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
	u.earlier = r.Topology.Generation > 1 && seen.Prefill+seen.Decode > 0
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
		if !up {
			if w, f := s.impossible(before); f != nil {
				return false, u.startFailed(f, w, s)
			}
		}
		if who, reason := s.homeless(); who == "" || u.inv.external() && !s.follows(who) {
			unplaced = time.Time{}
		} else if unplaced.IsZero() {
			unplaced = time.Now()
		} else if time.Since(unplaced) > patience {
			return false, &failure{action: "cannot place " + who, err: errors.New(reason), facts: s.goOn(), tries: append(u.takeBack(), "dynctl ps --nodes -o wide")}
		}
		return up, nil
	})
	if err != nil {
		return upResult{}, err
	}
	return u.result(url), nil
}

// startFailed is the error about a worker that cannot be what was declared. What was before
// can be declared again; with nothing before it, less may fit.
func (u *uplift) startFailed(f *failure, w cluster.Worker, s standing) error {
	tries := u.takeBack()
	if !u.earlier && strings.Contains(w.Reason, "memory") {
		fewer := fmt.Sprintf("dynctl up --decode %d", max(u.topo.Decode-1, 1))
		if w.Role == cluster.RolePrefill {
			fewer = fmt.Sprintf("dynctl up --prefill %d", u.topo.Prefill-1)
		}
		if u.topo.Count(w.Role) > 1 || w.Role == cluster.RolePrefill {
			tries = append(tries, fewer)
		}
		if n := u.fewerBlocks(s); n > 0 && !strings.Contains(w.Reason, "--kv-blocks") { // the agent knows better
			tries = append(tries, fmt.Sprintf("dynctl up --kv-blocks %d", n))
		}
	}
	f.tries = append(tries, f.tries...)
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

// takeBack is the order that takes a change back, if there was something else before.
func (u *uplift) takeBack() []string {
	if u.earlier {
		return []string{"dynctl rollback"}
	}
	return nil
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
