package clustertest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/store"
)

// Faults that happen on etcd in other tests, where files or NATS hold the state: the store
// does not answer for longer than leases live, a lease is lost, a worker drains.
func TestFaultsWithoutEtcd(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{config.BackendFile, config.BackendNATS} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			faultsWithoutEtcd(t, backend)
		})
	}
}

func faultsWithoutEtcd(t *testing.T, backend string) {
	c := clustertest.Start(t, clustertest.Options{
		Store: backend, Prefill: 1, Decode: 2, LeaseTTL: faultTTL,
		Nodes: []clustertest.Node{{Roles: []string{"decode"}}, {Roles: []string{"prefill"}}},
	})
	st := c.OpenStore()
	prompts := texts(3, 20)
	want := burst(t, c, prompts, 8)
	answers := func() {
		t.Helper()
		same(t, burst(t, c, prompts, 8), want)
	}
	before := map[string]cluster.InstanceID{}
	for _, w := range c.Watch.View().Workers() {
		before[w.Name] = w.InstanceID
	}

	start := c.StopStore()
	outage := time.Now()
	c.WaitView("the client knows that the store does not answer", func(client.View) bool {
		since, _, _ := c.Watch.Stale()
		return !since.IsZero()
	})
	answers()
	time.Sleep(time.Until(outage.Add(3 * faultTTL / 2))) // the length of the outage is the test
	answers()
	start()
	c.WaitView("the store answers", func(client.View) bool { since, _, _ := c.Watch.Stale(); return since.IsZero() })
	c.WaitReady(1, 2)
	answers()
	for _, w := range c.Watch.View().Workers() {
		if w.InstanceID != before[w.Name] {
			t.Errorf("%s lost its lease in the outage", w.Name)
		}
	}

	// A lease that is lost is granted anew, and everything is registered again.
	lost := c.Watch.View().Workers()[1]
	c.Insist(func(ctx context.Context) error {
		err := st.RevokeLease(ctx, lost.InstanceID)
		if errors.Is(err, store.ErrLeaseNotFound) { // the attempt before took effect
			err = nil
		}
		return err
	})
	c.WaitView(lost.Name+" is back", func(v client.View) bool {
		w := v.Worker(lost.Name)
		return w.State.Serving() && w.InstanceID != lost.InstanceID
	})
	c.WaitReady(1, 2)
	answers()

	c.Declare(1, 1)
	c.WaitReady(1, 1)
	answers()
}
