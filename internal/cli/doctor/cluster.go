package doctor

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cli/doctor/judge"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/inspect"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/statedir"
	"github.com/dynctl/dynctl/internal/version"
)

const (
	groupCluster  = "cluster"
	groupFrontend = "frontend"
)

// clusterChecks returns the names of the cluster's checks, in order.
func clusterChecks() []string {
	return []string{"etcd", "nats", "prefill-queue", "controller", "nodes", "alarms", "request-plane", "clocks", "leases", "workers", "servers", "model-files", "kv-index", "paths"}
}

// storeCheck is the name of the first check where no etcd holds the shared state.
const storeCheck = "store"

func frontendChecks() []string { return []string{"health", "models", "answer"} }

// clusterFindings checks the cluster and its frontends.
func (o *Options) clusterFindings(ctx context.Context) []judge.Finding {
	begin := time.Now()
	reach, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	c, err := client.Connect(reach, o.Session.Target(), o.Session.Log)
	var v client.View
	if err == nil {
		o.Session.CloseFirst(c)
		v, err = c.View(reach)
	}
	took := human.Milliseconds(time.Since(begin))
	if err != nil {
		return o.unreachable(err, took)
	}
	var own, front []judge.Finding
	var wg sync.WaitGroup
	wg.Go(func() {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(ctx, o.Timeout)
		defer cancel()
		var leader string
		var leads error
		var wg sync.WaitGroup
		wg.Go(func() { leader, leads = c.Leader(ctx) })
		var cards []cluster.ModelCard
		var unread error
		wg.Go(func() { cards, unread = c.ModelCards(ctx) })
		var index judge.Finding
		wg.Go(func() {
			all, err := c.KVIndexes(ctx, v, protocol.KVIndexRequest{})
			index = judge.KVIndex(all, err, time.Now())
		})
		p := c.Probe(ctx, v)
		wg.Wait()
		own = append(clusterState(v, p, leader, leads, o.Session.StartNode()), lookAtModel(ctx, v, cards, unread).Judge(), index)
		for i := range own {
			own[i].Group, own[i].Name, own[i].TookMS = groupCluster, clusterChecks()[i], human.Milliseconds(time.Since(begin))
		}
		if kind, name := c.StoreKind(); kind != "" {
			f := judge.Store(p.Etcd, kind, name)
			f.Group, f.Name, f.TookMS = groupCluster, storeCheck, own[0].TookMS
			own[0] = f
		}
	})
	wg.Go(func() { front = o.frontendFindings(ctx, v) })
	wg.Wait()
	// What moves bytes and computes comes after what it would slow down.
	begin = time.Now()
	paths := judge.Paths(c.Measure(ctx, v, o.Timeout, mostPaths))
	paths.Group, paths.Name, paths.TookMS = groupCluster, clusterChecks()[len(own)], human.Milliseconds(time.Since(begin))
	out := append(append(own, paths), front...)
	if o.ModelCheck != "" {
		out = append(out, o.recallFindings(ctx, c, v)...)
	}
	return out
}

// unreachable returns the findings about a cluster that does not run or does not answer.
func (o *Options) unreachable(err error, took float64) []judge.Finding {
	var out []judge.Finding
	what := clusterChecks()[0]
	if d := o.Session.Config.Discovery; d.InFiles() || d.InNATS() || d.InKubernetes() {
		what = storeCheck
	}
	for i, name := range append(clusterChecks(), frontendChecks()...) {
		f := judge.Skipped("%s has to answer first", what)
		switch {
		case errors.Is(err, statedir.ErrNotRunning):
			f = judge.Skipped("no cluster runs")
			if y := o.Session.Service(); y != nil {
				f = judge.Skipped("%s: %s", y, y.Use("dynctl doctor"))
			} else if others := o.Session.RunningClusters(); len(others) > 0 {
				f = judge.Skipped("cluster %s does not run; running here: %s", o.Session.Config.Cluster, strings.Join(others, ", "))
			}
		case i == 0:
			f = judge.Bad("dynctl ps -v, and look at "+what, "%v", err)
			f.TookMS = took
		}
		if i == 0 {
			name = what
		}
		f.Name, f.Group = name, groupCluster
		if i >= len(clusterChecks()) {
			f.Group = groupFrontend
		}
		out = append(out, f)
	}
	if o.ModelCheck != "" {
		out = append(out, judge.Finding{Name: "recall", Group: groupRecall, Status: judge.Skip, Found: "no cluster answers"})
	}
	return out
}

// clusterState judges what the services of a cluster say, in the order of the checks; start is
// how a node is started.
func clusterState(v client.View, p client.Probe, leader string, leads error, start string) []judge.Finding {
	return []judge.Finding{
		judge.Etcd(p.Etcd), judge.NATS(p.NATS), judge.PrefillQueue(p.Queue), judge.Controller(v, leader, leads),
		judge.Nodes(v, version.String(), start), judge.Alarms(v.Nodes), judge.RequestPlane(v.Nodes, p.Workers), judge.Clocks(p.Clocks), judge.Leases(v, p), judge.Workers(v, start), judge.Servers(v),
	}
}

// mostPaths limits the paths that are tested: each test moves a few times 2 MiB.
const mostPaths = 256

// lookAtModel finds the files of the declared model.
func lookAtModel(ctx context.Context, v client.View, cards []cluster.ModelCard, unread error) judge.ModelFiles {
	m := judge.ModelFiles{Cards: cards, Err: unread}
	if v.Topology == nil {
		return m
	}
	m.Model, m.OfServer = v.Topology.Model, v.Topology.OfServer()
	if m.Model.Builtin() != "" {
		return m
	}
	if _, err := os.Stat(m.Model.Path); err == nil {
		r := inspect.Look(ctx, m.Model.Path)
		m.Here = &r
	}
	return m
}
