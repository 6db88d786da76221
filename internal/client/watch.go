package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// View is the declared and the observed state of a cluster at one moment.
type View struct {
	Topology    *cluster.Topology
	Nodes       []cluster.Node // sorted by name
	Assignments map[string]cluster.Assignment
	Status      map[string]cluster.WorkerStatus
	Programs    []cluster.Program // sorted by name
	Instances   []cluster.Instance
	Cordons     map[string]cluster.Cordon // the drained nodes, by node id
}

// NameOf is the worker or node that a text names: by its name, else by its instance id in
// decimal or hexadecimal digits. What names nothing comes back as it is.
func (v View) NameOf(text string) string {
	named := text
	id, ok := cluster.ParseInstanceRef(text)
	ok = ok && id != 0
	for _, n := range v.Nodes {
		if n.Name == text {
			return text
		}
		if ok && n.InstanceID == id {
			named = n.Name
		}
	}
	for _, w := range v.Workers() {
		if w.Name == text {
			return text
		}
		if ok && w.InstanceID == id {
			named = w.Name
		}
	}
	return named
}

// Workers joins assignments and statuses, sorted by name. A worker with an assignment and
// no status is pending. A worker whose lease is gone has no status either, since the
// status ends with the lease.
func (v View) Workers() []cluster.Worker {
	names := map[string]bool{}
	for n := range v.Assignments {
		names[n] = true
	}
	for n := range v.Status {
		names[n] = true
	}
	out := []cluster.Worker{}
	for _, name := range slices.SortedFunc(maps.Keys(names), cluster.CompareNames) {
		out = append(out, v.Worker(name))
	}
	return out
}

// Worker returns one worker. For an unknown name, all other fields are empty.
func (v View) Worker(name string) cluster.Worker {
	a, assigned := v.Assignments[name]
	st, known := v.Status[name]
	st.Name = name
	w := cluster.Worker{WorkerStatus: st, Desire: a.Desire, Replaces: a.Replaces, Pool: a.Pool, ServerURL: a.Engine.Server.URL}
	if a.Engine.External() {
		w.Engine = a.Engine.Backend
	}
	for _, o := range v.Assignments {
		if o.Replaces == name && assigned {
			w.ReplacedBy = o.Name
		}
	}
	if why := v.Refused(a); why != "" && st.Reason == "" {
		w.Reason = goesOn + why
	}
	if assigned && !known {
		w.Name, w.Role, w.Model, w.Node, w.Device = name, a.Role, a.Model.Name, a.Node, a.Device
		w.State, w.Reason, w.Generation = cluster.StatePending, a.Unplaced, a.Generation
		if a.Node != "" && !slices.ContainsFunc(v.Nodes, func(n cluster.Node) bool { return n.ID == a.Node }) {
			w.State, w.Reason = cluster.StateLost, "its node is gone"
		}
	}
	return w
}

// Successor returns the worker that replaces the given one; false if there is none.
func (v View) Successor(worker string) (cluster.Worker, bool) {
	for name, a := range v.Assignments {
		if a.Replaces == worker {
			return v.Worker(name), true
		}
	}
	return cluster.Worker{}, false
}

// NodeName returns the name of a node, or its id if the node is gone.
func (v View) NodeName(id string) string {
	for _, n := range v.Nodes {
		if n.ID == id {
			return n.Name
		}
	}
	return id
}

// Frontends returns the URLs of the HTTP frontends.
func (v View) Frontends() []string {
	var urls []string
	for _, n := range v.Nodes {
		if n.FrontendURL != "" {
			urls = append(urls, n.FrontendURL)
		}
	}
	return urls
}

// Watch keeps a View current until it is closed.
type Watch struct {
	topology    *store.Prefix[cluster.Topology]
	nodes       *store.Prefix[cluster.Node]
	assignments *store.Prefix[cluster.Assignment]
	status      *store.Prefix[cluster.WorkerStatus]
	programs    *store.Prefix[cluster.Program]
	instances   []*store.Prefix[cluster.Instance] // each wins over the later ones
	of          cluster.Endpoint
	cordons     *store.Prefix[cluster.Cordon]
	key         string
	namespace   string
	open        []interface{ Close() } // the watches above that were started

	changed chan struct{} // capacity 1
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

// Watch starts following the cluster. The caller closes the watch.
func (c *Cluster) Watch(ctx context.Context) (*Watch, error) {
	return c.WatchOf(ctx, cluster.Endpoint{Namespace: c.Namespace})
}

// WatchOf is [Cluster.Watch] with the instances of a query, which may be of other
// namespaces.
func (c *Cluster) WatchOf(ctx context.Context, of cluster.Endpoint) (w *Watch, err error) {
	ctx, cancel := context.WithCancel(ctx)
	w = &Watch{of: of, changed: make(chan struct{}, 1), cancel: cancel, key: cluster.TopologyKey(c.Namespace), namespace: c.Namespace}
	defer func() {
		if err != nil {
			w.Close()
			err = fmt.Errorf("watch cluster %s: %w", c.Name, err)
		}
	}()
	if w.topology, err = follow[cluster.Topology](ctx, w, c, w.key); err != nil {
		return w, err
	}
	if w.nodes, err = follow[cluster.Node](ctx, w, c, cluster.NodePrefix); err != nil {
		return w, err
	}
	if w.assignments, err = follow[cluster.Assignment](ctx, w, c, cluster.AssignmentPrefix(c.Namespace)); err != nil {
		return w, err
	}
	if w.status, err = follow[cluster.WorkerStatus](ctx, w, c, cluster.StatusPrefix(c.Namespace)); err != nil {
		return w, err
	}
	if w.programs, err = follow[cluster.Program](ctx, w, c, cluster.ProgramPrefix(c.Namespace)); err != nil {
		return w, err
	}
	if w.cordons, err = follow[cluster.Cordon](ctx, w, c, cluster.CordonPrefix(c.Namespace)); err != nil {
		return w, err
	}
	return w, w.followInstances(ctx, c)
}

func follow[T any](ctx context.Context, w *Watch, c *Cluster, prefix string) (*store.Prefix[T], error) {
	return followAs(ctx, w, c, prefix, store.DecodeJSON[T])
}

func followAs[T any](ctx context.Context, w *Watch, c *Cluster, prefix string, decode func(store.KV) (T, error)) (*store.Prefix[T], error) {
	p, err := store.WatchPrefix(ctx, c.store, prefix, decode, c.log)
	if err != nil {
		return nil, err
	}
	w.open = append(w.open, p)
	w.wg.Go(func() {
		for {
			select {
			case <-p.Changed():
				select {
				case w.changed <- struct{}{}:
				default:
				}
			case <-p.Done():
				return
			}
		}
	})
	return p, nil
}

// Changed returns a channel that receives after changes. Several changes may arrive as
// one.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Stale reports whether the view is out of date: since when, until when the next attempt
// to reach the store is due, and why. since is zero while the view is current.
func (w *Watch) Stale() (since, next time.Time, err error) {
	since, err, next = w.status.Stale()
	return since, next, err
}

// View returns the current view.
func (w *Watch) View() View {
	v := View{
		Nodes:       []cluster.Node{},
		Assignments: map[string]cluster.Assignment{},
		Status:      map[string]cluster.WorkerStatus{},
		Instances:   w.registered(),
		Cordons:     map[string]cluster.Cordon{},
	}
	for _, n := range w.nodes.Snapshot() {
		if n.In(w.namespace) {
			v.Nodes = append(v.Nodes, n)
		}
	}
	slices.SortFunc(v.Nodes, func(a, b cluster.Node) int { return compareNodes(a.Name, b.Name) })
	if t, ok := w.topology.Get(w.key); ok {
		v.Topology = &t
	}
	for _, k := range w.cordons.Snapshot() {
		v.Cordons[k.Node] = k
	}
	for _, a := range w.assignments.Snapshot() {
		v.Assignments[a.Name] = a
	}
	for _, st := range w.status.Snapshot() {
		v.Status[st.Name] = st
	}
	v.Programs = slices.SortedFunc(maps.Values(w.programs.Snapshot()), func(a, b cluster.Program) int {
		return cmp.Or(cluster.CompareNames(a.Name, b.Name), cmp.Compare(a.InstanceID, b.InstanceID))
	})
	return v
}

// compareNodes orders node names by number, so that node-2 comes before node-10.
func compareNodes(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Close ends the watch and waits for its goroutines.
func (w *Watch) Close() {
	w.cancel()
	for _, p := range w.open {
		p.Close()
	}
	w.wg.Wait()
}

// View reads the cluster once.
func (c *Cluster) View(ctx context.Context) (View, error) {
	return c.ViewOf(ctx, cluster.Endpoint{Namespace: c.Namespace})
}

// ViewOf is [Cluster.View] with the instances of a query, as [Cluster.WatchOf].
func (c *Cluster) ViewOf(ctx context.Context, of cluster.Endpoint) (View, error) {
	w, err := c.WatchOf(ctx, of)
	if err != nil {
		return View{}, err
	}
	defer w.Close()
	return w.View(), nil
}

// errEnded is returned by Until when the watch ends before done returns true.
var errEnded = errors.New("watch ended")

// Until calls done with the current view, after every change and at least once per
// interval. It returns when done returns true or an error, or ctx ends.
func (w *Watch) Until(ctx context.Context, interval time.Duration, done func(View) (bool, error)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		ok, err := done(w.View())
		if ok || err != nil {
			return err
		}
		select {
		case <-w.changed:
		case <-tick.C:
		case <-w.status.Done():
			return errEnded
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
