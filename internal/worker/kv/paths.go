package kv

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/store"
)

// TestPath proves the path to a worker. Its error says why there is no path; that of
// a test which failed is part of the path. Calls take turns.
func (p *Peers) TestPath(ctx context.Context, peer string) error {
	p.testing.Lock()
	defer p.testing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, selfTestTimeout)
	defer cancel()
	prefix := cluster.NIXLMetadataPrefix(p.p.cfg.Namespace)
	kvs, _, err := p.p.cfg.Store.List(ctx, prefix+peer+".")
	if err != nil {
		return fmt.Errorf("look for the NIXL metadata of %s: %w", peer, err)
	}
	i := slices.IndexFunc(kvs, func(kv store.KV) bool { return WorkerOf(strings.TrimPrefix(kv.Key, prefix)) == peer })
	if i < 0 {
		return fmt.Errorf("%s offers no memory: it publishes no NIXL metadata", peer)
	}
	agent := strings.TrimPrefix(kvs[i].Key, prefix)
	leave, err := p.Ensure(ctx, agent)
	if err != nil {
		return err
	}
	defer leave()
	_, _ = p.p.agent.ProvePath(ctx, agent) // the agent keeps what came of it
	return nil
}

// Paths lists the paths to the peers of the NIXL agent, or to those of one worker.
func (p *Plane) Paths(peer string) []cluster.Path {
	var out []cluster.Path
	for _, i := range p.agent.Peers() { // loaded ones of an incarnation stand beside inbound ones
		to := WorkerOf(i.Name)
		if to == "" || peer != "" && to != peer {
			continue
		}
		out = append(out, pathOf(p.cfg.Worker, to, i))
	}
	slices.SortStableFunc(out, func(a, b cluster.Path) int {
		if a.To != b.To {
			return strings.Compare(a.To, b.To)
		}
		return quality(b) - quality(a)
	})
	// A worker that was restarted has several agents: the best path is that of the live one.
	return slices.CompactFunc(out, func(a, b cluster.Path) bool { return a.To == b.To })
}

func quality(p cluster.Path) int {
	switch {
	case p.OK():
		return 2
	case p.Transport != "":
		return 1
	}
	return 0
}

// WorkerOf is the worker whose agent bears a name, which ends with an incarnation.
func WorkerOf(agent string) string {
	i := strings.LastIndexByte(agent, '.')
	return agent[:max(i, 0)]
}

func pathOf(from, to string, p nixl.PeerInfo) cluster.Path {
	out := cluster.Path{From: from, To: to, Transport: p.Transport}
	switch p.State {
	case nixl.PeerInbound:
		out.Transport, out.Inbound = "", p.Transport
		return out
	case nixl.PeerFailed:
		out.Failed = p.Reason
	}
	for _, c := range p.Candidates {
		out.Candidates = append(out.Candidates, cluster.PathCandidate{Transport: c.Transport, Verdict: c.Verdict.String(), Reason: c.Reason})
	}
	if t := p.Test; t != nil {
		out.Test = &cluster.PathTest{
			At: t.At, Transport: p.Transport, WriteGBps: t.Result.WriteGBps, ReadGBps: t.Result.ReadGBps,
			RTTMicros: float64(t.Result.RTT.Nanoseconds()) / 1e3,
		}
		if t.Err != nil {
			out.Test.Error = t.Err.Error()
		}
	}
	return out
}
