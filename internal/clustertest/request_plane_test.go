package clustertest_test

import (
	"testing"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/patience"
)

// Every node serves requests as it is configured to, and each calls the others as they
// serve. On each plane, and while a cluster changes from one to the other, clients get the
// same answers, also across a drain with hand-over and the death of a node.
func TestRequestPlanes(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("planes run with the race detector on their own, and hand-overs and deaths with one of them")
	}
	t.Parallel()
	dir := mediumModel(t)
	prompts := texts(8, 30)
	const tokens = 1200 / slowdown
	options := clustertest.Options{
		Model: dir, Prefill: 1, Decode: 2, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 2048}, LeaseTTL: faultTTL,
		Config: func(cfg *config.Dynamod) { cfg.Router.Policy, cfg.Disagg.MaxLocalPrefillTokens = "round-robin", 0 },
	}
	bodies := demanding(600 / slowdown)
	reference := clustertest.Start(t, options)
	want := burst(t, reference, prompts, tokens)
	wantBodies, _ := all(t, reference, bodies)
	on := func(mode string, encrypt, process bool) clustertest.Node {
		return clustertest.Node{Process: process, Config: func(cfg *config.Dynamod) {
			cfg.RequestPlane.Mode, cfg.RequestPlane.TLS = mode, encrypt
		}}
	}
	for _, tc := range []struct {
		name  string
		first cluster.Plane
		nodes []clustertest.Node
	}{
		{"http", cluster.PlaneHTTP, []clustertest.Node{on(config.PlaneHTTP, true, false), on(config.PlaneHTTP, true, true)}},
		{"nats", cluster.PlaneNATS, []clustertest.Node{on(config.PlaneNATS, true, false), on(config.PlaneNATS, true, true)}},
		{"http beside tcp", cluster.PlaneHTTP, []clustertest.Node{on(config.PlaneHTTP, false, false), on(config.PlaneTCP, false, true)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := options
			o.Nodes = tc.nodes
			c := clustertest.Start(t, o)
			for _, inst := range c.Watch.View().Instances {
				if _, plane := cluster.SplitPlane(inst.Transport.Address()); inst.Node == c.Nodes[0].ID && inst.Transport.Address() != "" && plane != tc.first {
					t.Errorf("%s/%s of the first node is at %s", inst.Component, inst.Endpoint, inst.Transport.Address())
				}
			}
			const drained = "worker-2" // worker-1 is the one for prefill
			asking := ask(t, c, bodies, wantBodies)
			for drainMoves(t, c, drained).Moved == 0 {
				resume(t, c, drained)
				c.WaitReady(1, 2)
			}
			resume(t, c, drained)
			asking.end()
			c.WaitReady(1, 2)

			var got []clustertest.Answer
			done := make(chan struct{})
			go func() {
				defer close(done)
				got = burst(t, c, prompts, tokens)
			}()
			c.WaitView("the second node is busy", func(client.View) bool {
				for _, st := range c.LiveStats() {
					if st.Node == c.Nodes[1].ID && st.Stats.Running > 2 && st.Stats.GeneratedTotal > 20 {
						return true
					}
				}
				return false
			})
			c.Nodes[1].Kill()
			<-done
			same(t, got, want)
		})
	}
}
