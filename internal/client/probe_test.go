package client

import (
	"context"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/patience"
)

func TestProbe(t *testing.T) {
	s := startServers(t)
	c := s.connect()
	held := grant(t, c, 20*time.Second)
	v := View{
		Nodes:  []cluster.Node{{ID: "n1", Name: "node-1", InstanceID: held}},
		Status: map[string]cluster.WorkerStatus{"worker-1": {Name: "worker-1", InstanceID: held + 1}},
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := c.Probe(ctx, v)
	if p.Etcd.Err != nil || p.Etcd.RTT <= 0 || p.NATS == nil || p.NATS.Err != nil || p.NATS.RTT <= 0 {
		t.Errorf("etcd %+v, NATS %+v", p.Etcd, p.NATS)
	}
	if p.Queue == nil || p.Queue.Err != nil || p.Queue.Depth.Pending != 0 {
		t.Errorf("queue %+v", p.Queue)
	}
	if len(p.Leases) != 1 || p.Leases[0].Owner != "node-1" || p.Leases[0].TTL != 20*time.Second || p.Leases[0].Left <= 0 {
		t.Errorf("leases %+v", p.Leases)
	}
	if len(p.Gone) != 1 || p.Gone[0] != "worker-1" || p.Unasked != 0 || len(p.Clocks) != 0 {
		t.Errorf("gone %v, %d unasked, clocks %v", p.Gone, p.Unasked, p.Clocks)
	}
	if leader, err := c.Leader(ctx); err != nil || leader != "" {
		t.Errorf("leader %q, %v", leader, err)
	}
}

// What does not answer has failed when the time is over, the rest is told.
func TestProbeWithoutAnswers(t *testing.T) {
	s := startServers(t)
	c := s.connect()
	s.stopNATS()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Soon/10) // of which the silent server takes all
	defer cancel()
	p := c.Probe(ctx, View{})
	if p.Etcd.Err != nil || p.NATS == nil || p.NATS.Err == nil || p.Queue == nil || p.Queue.Err == nil {
		t.Errorf("%+v", p)
	}
	c = s.connect(func(cfg *config.Dynctl) { cfg.NATS.URL = "" })
	if p := c.Probe(t.Context(), View{}); p.NATS != nil || p.Queue != nil {
		t.Errorf("without an event plane: %+v", p)
	}
}
