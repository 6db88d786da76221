package client

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// tells adds a worker that tells what it has in hand; the number says how often it was
// asked.
func tells(t *testing.T, s *servers, c *Cluster, name string, role cluster.Role, a cluster.Activity) *atomic.Int64 {
	t.Helper()
	srv, err := requestplane.ListenTCP(requestplane.ServerConfig{Key: testSecret.key, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	asked := &atomic.Int64{}
	_, err = srv.Handle("1/activity", func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		asked.Add(1)
		a.Worker = name
		return send(a)
	})
	if err != nil {
		t.Fatal(err)
	}
	lease := grant(t, c, time.Minute)
	inst := cluster.Instance{
		Type: cluster.InstanceType, Namespace: s.namespace, Component: role.Component(), Endpoint: cluster.EndpointActivity, InstanceID: lease,
		Transport: cluster.Transport{TCP: srv.Addr() + "/1/activity"}, Worker: name,
	}
	put(t, c, inst.Key(), inst, lease)
	return asked
}

// A live source asks the inspected worker alone, and whoever writes to it.
func TestInspect(t *testing.T) {
	s := startServers(t)
	sc := newScene(t, s)
	ten, bytes := 10, int64(10<<20)
	decode := tells(t, s, sc.c, "worker-1", cluster.RoleDecode, cluster.Activity{
		Sequences: []cluster.Sequence{{ID: "r-1~1", RequestID: "r-1", State: cluster.SequenceRemote}}, SequencesTotal: 70,
		Transfers: []cluster.Transfer{
			{RequestID: "r-1", Direction: cluster.TransferIn, Peer: "worker-2", Kind: cluster.TransferWrite, Blocks: 31},
			{RequestID: "r-2", Direction: cluster.TransferIn, Peer: "worker-9", Kind: cluster.TransferWrite, Blocks: 31}, // gone
			{RequestID: "r-3", Direction: cluster.TransferIn, Kind: cluster.TransferWrite, Blocks: 31},                   // nobody has begun
		}, TransfersTotal: 3,
	})
	prefill := tells(t, s, sc.c, "worker-2", cluster.RolePrefill, cluster.Activity{
		Transfers: []cluster.Transfer{
			{RequestID: "r-1", Direction: cluster.TransferOut, Peer: "worker-3", Kind: cluster.TransferWrite},
			{RequestID: "r-1", Direction: cluster.TransferOut, Peer: "worker-1", Kind: cluster.TransferWrite, Blocks: 31, BlocksDone: &ten, BytesDone: &bytes},
		}, TransfersTotal: 2,
	})
	l := live(t, sc.c, LiveOptions{})
	until(t, l, "the worker is there", func(s cluster.Snapshot) bool { return len(s.Workers) == 1 && s.Activity == nil })
	if decode.Load() != 0 {
		t.Error("a worker that nobody looks at was asked")
	}
	l.Inspect("worker-1")
	got := until(t, l, "the worker's activity", func(s cluster.Snapshot) bool { return s.Activity != nil && s.Activity.Error == "" }).Activity
	if got.Worker != "worker-1" || got.SequencesTotal != 70 || len(got.Sequences) != 1 || got.TransfersTotal != 3 || len(got.Transfers) != 3 {
		t.Fatalf("%+v", got)
	}
	if x := got.Transfers[0]; x.BlocksDone == nil || *x.BlocksDone != 10 || *x.BytesDone != bytes || x.Blocks != 31 {
		t.Errorf("what its writer knows is missing: %+v", x)
	}
	for _, x := range got.Transfers[1:] {
		if x.BlocksDone != nil {
			t.Errorf("nobody knows how far this is: %+v", x)
		}
	}
	if prefill.Load() == 0 {
		t.Error("the writer was not asked")
	}

	l.Inspect("worker-7")
	got = until(t, l, "another worker", func(s cluster.Snapshot) bool { return s.Activity != nil && s.Activity.Worker == "worker-7" }).Activity
	if !strings.Contains(got.Error, "not up") || got.Sequences == nil || got.Transfers == nil {
		t.Errorf("a worker that is not there: %+v", got)
	}
	l.Inspect("")
	until(t, l, "nobody is asked", func(s cluster.Snapshot) bool { return s.Activity == nil })
	asked := decode.Load()
	for range 3 {
		until(t, l, "one more snapshot", func(cluster.Snapshot) bool { return true })
	}
	if n := decode.Load(); n != asked {
		t.Errorf("asked %d times more after the screen was closed", n-asked)
	}
}
