package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// plane answers on the request plane and registers what it answers.
func plane(t *testing.T, c *Cluster, component, endpoint, node, worker string, id cluster.InstanceID, h requestplane.Handler) {
	t.Helper()
	srv, err := requestplane.ListenTCP(requestplane.ServerConfig{Addr: "127.0.0.1:0", Key: testSecret.key, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	if _, err := srv.Handle(id.String()+"/"+endpoint, h); err != nil {
		t.Fatal(err)
	}
	inst := cluster.Instance{
		Type: cluster.InstanceType, Namespace: c.Namespace, Component: component, Endpoint: endpoint, InstanceID: id, Node: node, Worker: worker,
		Transport: cluster.Transport{TCP: srv.Addr() + "/" + id.String() + "/" + endpoint},
	}
	put(t, c, inst.Key(), inst, id)
}

func view(t *testing.T, c *Cluster) View {
	t.Helper()
	v, err := c.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestWorkersAreAskedThemselves(t *testing.T) {
	c := lab(t)
	now := time.Now()
	id := grant(t, c, time.Minute)
	silent := grant(t, c, time.Minute)
	status := func(n int, id cluster.InstanceID, running int, at time.Time) cluster.WorkerStatus {
		return cluster.WorkerStatus{
			Name: cluster.WorkerName(n), Role: cluster.RoleDecode, Node: "n1", State: cluster.StateReady, InstanceID: id,
			StartedAt: now.Add(-time.Hour), UpdatedAt: at, Stats: cluster.WorkerStats{Running: running},
		}
	}
	put(t, c, cluster.NodeKey("n1"), cluster.Node{ID: "n1", Name: "node-1", Namespace: c.Namespace}, id)
	put(t, c, cluster.StatusKey(c.Namespace, "worker-1"), status(1, id, 1, now.Add(-5*time.Second)), id)
	put(t, c, cluster.StatusKey(c.Namespace, "worker-2"), status(2, silent, 2, now), silent)
	plane(t, c, "decode", cluster.EndpointStats, "n1", "worker-1", id, func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		return send(status(1, id, 7, now))
	})
	plane(t, c, "decode", cluster.EndpointStats, "n1", "worker-2", silent, func(ctx context.Context, _ *requestplane.Request, _ func(any) error) error {
		<-ctx.Done()
		return ctx.Err()
	})
	begin := time.Now()
	ws := c.Workers(t.Context(), view(t, c))
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("a silent worker held it up for %s", took)
	}
	if len(ws) != 2 || ws[0].Stats.Running != 7 || ws[1].Stats.Running != 2 {
		t.Fatalf("got %+v", ws)
	}
	if ws[0].Silent() || !ws[1].Silent() {
		t.Errorf("silent: %v, %v", ws[0].Silent(), ws[1].Silent())
	}
	for _, w := range ws {
		if w.Lease == nil || *w.Lease > time.Minute || w.Uptime == nil || *w.Uptime < time.Hour || w.Node != "node-1" {
			t.Errorf("%s: lease %v, uptime %v, node %s", w.Name, w.Lease, w.Uptime, w.Node)
		}
	}
}

func TestLogs(t *testing.T) {
	c := lab(t)
	id := grant(t, c, time.Minute)
	var asked protocol.LogRequest
	plane(t, c, cluster.ComponentAgent, cluster.EndpointLogs, "n1", "node-1", id, func(_ context.Context, r *requestplane.Request, send func(any) error) error {
		if err := r.Decode(&asked); err != nil {
			return err
		}
		if asked.Worker == "worker-9" {
			return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: "no log of worker-9"}
		}
		return errors.Join(send(protocol.LogChunk{Data: []byte("one\n")}), send(protocol.LogChunk{Data: []byte("two\n")}))
	})
	v := view(t, c)
	var b strings.Builder
	write := func(p []byte) error { b.Write(p); return nil }
	opts := LogOptions{Worker: "worker-1", Tail: 3, Follow: true}
	if err := c.Logs(t.Context(), v, "n1", opts, write); err != nil || b.String() != "one\ntwo\n" {
		t.Errorf("got %q %v", b.String(), err)
	}
	if asked != (protocol.LogRequest{Worker: "worker-1", Tail: 3, Follow: true}) {
		t.Errorf("asked for %+v", asked)
	}
	if err := c.Logs(t.Context(), v, "n2", opts, write); !errors.Is(err, ErrNoLogs) {
		t.Errorf("a node without an agent: %v", err)
	}
	if err := c.Logs(t.Context(), v, "n1", LogOptions{Worker: "worker-9"}, write); err == nil || !strings.Contains(err.Error(), "no log of worker-9") {
		t.Errorf("a refusal: %v", err)
	}
	full := errors.New("disk full")
	if err := c.Logs(t.Context(), v, "n1", opts, func([]byte) error { return full }); !errors.Is(err, full) {
		t.Errorf("a reader that fails: %v", err)
	}
}

func TestForget(t *testing.T) {
	c := lab(t)
	node, worker, other := grant(t, c, time.Minute), grant(t, c, time.Minute), grant(t, c, time.Minute)
	n := cluster.Node{ID: "dead-" + c.Namespace, Name: "node-2", Namespace: c.Namespace, InstanceID: node}
	put(t, c, cluster.NodeKey(n.ID), n, node)
	put(t, c, cluster.StatusKey(c.Namespace, "worker-1"), cluster.WorkerStatus{Name: "worker-1", Node: n.ID, InstanceID: worker}, worker)
	put(t, c, cluster.StatusKey(c.Namespace, "worker-2"), cluster.WorkerStatus{Name: "worker-2", Node: "alive", InstanceID: other}, other)
	v := view(t, c)
	for range 2 { // again: the leases are gone already
		if err := c.Forget(t.Context(), v, n); err != nil {
			t.Fatal(err)
		}
	}
	v = view(t, c)
	if _, ok := v.Status["worker-1"]; ok || len(v.Status) != 1 {
		t.Errorf("statuses left: %v", v.Status)
	}
	for _, left := range v.Nodes {
		if left.ID == n.ID {
			t.Error("the node is left")
		}
	}
}
