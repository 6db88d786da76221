package live

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/kube/kubetest"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/store"
)

var statefulSets = kube.Resource{Group: "apps", Version: "v1", Plural: "statefulsets", Kind: "StatefulSet"}

// cloud runs pods as StatefulSets say, each a node with room for one worker of its role.
type cloud struct {
	w      *world
	server *kubetest.Server
	admin  *kube.Client
	pods   map[string]*pretendedPod
	slow   bool            // no pod gets up
	free   map[string]bool // pods that somebody else took away: workers on them are theirs to lose
	most   int             // pods that there were at once
}

// pretendedPod is a pod that is there. It gets up, and ends, after some seconds.
type pretendedPod struct {
	role    cluster.Role
	starts  int
	ends    int // 0: it does not
	ordinal int
}

const (
	podStarts = 3
	podEnds   = 8
)

func (*cloud) set(role cluster.Role) string { return "dynctl-" + string(role) }

// inCloud is inWorld with pods for the workers.
func inCloud(t *testing.T, prefill, decode int, f func(w *world)) {
	t.Helper()
	inAny(t, prefill, decode, func(w *world) {
		server := kubetest.Offline()
		server.Serve(statefulSets, true)
		w.kube = &cloud{w: w, server: server, admin: server.Direct("k", nil), pods: map[string]*pretendedPod{}, free: map[string]bool{}}
		for role, n := range map[cluster.Role]int{cluster.RolePrefill: prefill, cluster.RoleDecode: decode} {
			w.kube.create(w.kube.set(role), n)
			for i := range n {
				w.kube.pods[fmt.Sprintf("%s-%d", w.kube.set(role), i)] = &pretendedPod{role: role, ordinal: i}
			}
		}
		w.settings.Connector = ConnectorKubernetes
		w.settings.Planner.KeepRoles = true
		w.settings.Targets = Targets{Prefill: target("dynctl-prefill"), Decode: target("dynctl-decode")}
		w.kube.live()
	}, func(w *world) {
		f(w)
		if most := max(w.settings.Planner.Devices, 8); w.kube.most > most {
			t.Errorf("%d pods at once, of %d", w.kube.most, most)
		}
	})
}

func target(name string) cluster.ScaleTarget {
	return cluster.ScaleTarget{Resource: "statefulsets", Group: "apps", Name: name}
}

func (c *cloud) create(name string, replicas int) {
	object := map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"replicas": replicas}, "status": map[string]any{"replicas": replicas}}
	if err := c.admin.Create(context.Background(), statefulSets, object, &kube.Object{}); err != nil {
		c.w.t.Fatal(err)
	}
}

// client returns what a planner is given: a client whose changes pass a gate.
func (c *cloud) client(gate func(key string)) func() (*kube.Client, error) {
	return func() (*kube.Client, error) {
		return c.server.Direct("k", func(r *http.Request) {
			if gate != nil && r.Method != http.MethodGet {
				gate(r.URL.Path[strings.Index(r.URL.Path, "statefulsets"):])
			}
		}), nil
	}
}

// scale is what kubectl scale does.
func (c *cloud) scale(role cluster.Role, n int) {
	c.w.t.Helper()
	for name, p := range c.pods {
		if p.role == role && p.ordinal >= n {
			c.free[name] = true
		}
	}
	if err := c.admin.Patch(context.Background(), statefulSets, c.set(role), map[string]any{"spec": map[string]any{"replicas": n}}, &kube.Object{}); err != nil {
		c.w.t.Fatal(err)
	}
}

// replicas returns how many pods are wanted.
func (c *cloud) replicas(role cluster.Role) int {
	s, err := c.admin.Scale(context.Background(), statefulSets, c.set(role))
	if err != nil {
		c.w.t.Fatal(err)
	}
	return s.Spec.Replicas
}

// live runs the pods for a second, as the controllers of Kubernetes do, unless the API server is away.
func (c *cloud) live() {
	w := c.w
	for _, role := range planner.Roles {
		s, err := c.admin.Scale(w.ctx, statefulSets, c.set(role))
		if err != nil {
			continue
		}
		for i := range s.Spec.Replicas {
			name := fmt.Sprintf("%s-%d", c.set(role), i)
			if c.pods[name] == nil {
				c.pods[name] = &pretendedPod{role: role, ordinal: i, starts: podStarts}
			}
		}
		there := 0
		for _, name := range slices.Sorted(maps.Keys(c.pods)) {
			p := c.pods[name]
			if p.role != role {
				continue
			}
			there++
			if p.ordinal >= s.Spec.Replicas && p.ends == 0 {
				p.ends = podEnds
				for _, x := range w.workers {
					if x.node == name && !c.free[name] {
						w.t.Errorf("%s ends with %s on it", name, x.name)
					}
				}
			}
			switch {
			case p.ends > 1:
				p.ends--
			case p.ends == 1:
				delete(c.pods, name)
				delete(c.free, name)
				if err := w.store.Delete(w.ctx, cluster.NodeKey(name)); err != nil && p.starts == 0 {
					w.t.Error(err)
				}
			case p.starts > 1 || p.starts == 1 && c.slow:
				p.starts = max(p.starts-1, 1)
			default:
				p.starts = 0
				if _, err := w.store.Get(w.ctx, cluster.NodeKey(name)); err != nil {
					w.put(cluster.NodeKey(name), cluster.Node{ID: name, Name: name, Roles: []cluster.Role{role}, Devices: make([]cluster.Device, 1)})
				}
			}
		}
		c.status(role, there)
	}
	c.most = max(c.most, len(c.pods))
}

// status tells how many pods there are.
func (c *cloud) status(role cluster.Role, n int) {
	_ = c.admin.Patch(context.Background(), statefulSets, c.set(role), map[string]any{"status": map[string]any{"replicas": n}}, &kube.Object{}) // the server may be away
}

// cordoned reports whether a node takes no workers.
func (c *cloud) cordoned(node string) bool {
	_, err := c.w.store.Get(c.w.ctx, cluster.CordonKey(ns, node))
	return err == nil
}

// drained reports whether a worker must leave its node.
func (c *cloud) drained(x *pretended) bool { return c != nil && x.node != "" && c.cordoned(x.node) }

// room returns a pod for a worker of a role: the one with the lowest number; empty if there is none.
func (c *cloud) room(role cluster.Role) string {
	if c == nil {
		return "n1"
	}
	for i := range 100 {
		name := fmt.Sprintf("%s-%d", c.set(role), i)
		p := c.pods[name]
		taken := slices.ContainsFunc(c.w.workers, func(x *pretended) bool { return x.node == name })
		if p != nil && p.starts == 0 && p.ends == 0 && !taken && !c.cordoned(name) {
			return name
		}
	}
	return ""
}

// place gives a worker a place, or another one where its own goes. It reports whether it has.
func (c *cloud) place(x *pretended) bool {
	if p := c.pods[x.node]; x.gone || x.node != "" && p != nil && p.ends != 1 && !c.cordoned(x.node) {
		return false
	}
	if p := c.pods[x.node]; x.node != "" && (p == nil || p.ends == 1) { // it went with its pod
		x.node, x.ready, x.left = "", false, c.w.starts
		if err := c.w.store.Delete(c.w.ctx, cluster.StatusKey(ns, x.name)); err != nil {
			c.w.t.Error(err)
		}
		x.node = c.room(x.role)
		return true
	}
	if room := c.room(x.role); room != "" {
		x.node = room
		return true
	}
	return false
}

// ours returns the nodes that planners drain.
func (c *cloud) ours() (nodes []string) {
	kvs, _, err := c.w.store.List(c.w.ctx, cluster.CordonPrefix(ns))
	if err != nil {
		c.w.t.Fatal(err)
	}
	for _, kv := range kvs {
		k, err := store.DecodeJSON[cluster.Cordon](kv)
		if err != nil {
			c.w.t.Fatal(err)
		}
		if strings.HasPrefix(k.By, byPlanner) {
			nodes = append(nodes, k.Node)
		}
	}
	return nodes
}
