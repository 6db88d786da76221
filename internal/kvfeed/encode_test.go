package kvfeed

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/kvindex"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
)

// An encode worker has no KV events: nobody follows it or waits for any, even if it serves
// their endpoint, and its status is nobody's.
func TestEncodeWorkersAreNotFollowed(t *testing.T) {
	c := runtimetest.New(t)
	ids := map[cluster.Role]cluster.InstanceID{}
	for role, name := range map[cluster.Role]string{cluster.RoleEncode: "worker-1", cluster.RoleDecode: "worker-2", cluster.RolePrefill: "worker-3"} {
		rt := c.Runtime(t, name)
		ids[role] = rt.ID()
		served, err := rt.Serve(t.Context(), role.Component(), cluster.EndpointKVEvents, func(context.Context, *requestplane.Request, func(any) error) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = served.Close(context.Background()) })
	}
	var came, spoke []cluster.InstanceID
	f, err := New(t.Context(), Config{
		Runtime: c.Runtime(t, "frontend"), Index: kvindex.New(kvindex.Config{}), Log: slog.New(slog.DiscardHandler),
		Came:   func(id cluster.InstanceID, _ string) { came = append(came, id) },
		Status: func(st cluster.WorkerStatus) { spoke = append(spoke, st.InstanceID) },
		Gone:   func(cluster.InstanceID) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, client := range f.clients {
		if err := client.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	f.follow(now)
	if len(came) != 2 || len(f.States()) != 2 {
		t.Errorf("%d workers came, %+v are followed", len(came), f.States())
	}
	for _, w := range f.due(now.Add(time.Hour), 9) {
		if w.id == ids[cluster.RoleEncode] {
			t.Error("the encode worker is asked for KV events")
		}
	}
	for _, role := range cluster.Roles {
		b, err := protocol.Marshal(cluster.WorkerStatus{InstanceID: ids[role], Role: role})
		if err != nil {
			t.Fatal(err)
		}
		f.onStatus(events.Event{Payload: b})
	}
	if len(spoke) != 2 {
		t.Errorf("statuses of %v are taken, want those of the decode and the prefill worker alone", spoke)
	}
}
