package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/store"
)

// servePaths tells how this worker reaches others over NIXL, and tests a path when it
// is asked to.
func (w *Worker) servePaths(ctx context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.PathsRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	if req.Peer == w.Name() {
		return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: "a worker has no path to itself"}
	}
	var failed error
	if req.Peer != "" && req.Test {
		w.testing.Lock() // one test at a time, whoever asks
		failed = w.testPath(ctx, req.Peer)
		w.testing.Unlock()
	}
	paths := w.paths(req.Peer)
	if req.Peer != "" {
		if len(paths) == 0 {
			paths = []cluster.Path{{From: w.Name(), To: req.Peer}}
		}
		if p := &paths[0]; p.Transport == "" && failed != nil {
			p.Failed = failed.Error()
		} else if p.Transport == "" && p.Failed == "" {
			p.Failed = "not met yet"
		}
	}
	for _, p := range paths {
		if err := send(p); err != nil {
			return err
		}
	}
	return nil
}

// testPath proves the path to a worker. Its error says why there is no path; that of
// a test which failed is part of the path.
func (w *Worker) testPath(ctx context.Context, peer string) error {
	ctx, cancel := context.WithTimeout(ctx, selfTestTimeout)
	defer cancel()
	prefix := cluster.NIXLMetadataPrefix(w.cfg.Namespace)
	kvs, _, err := w.cfg.Store.List(ctx, prefix+peer+".")
	if err != nil {
		return fmt.Errorf("look for the NIXL metadata of %s: %w", peer, err)
	}
	i := slices.IndexFunc(kvs, func(kv store.KV) bool { return workerOf(strings.TrimPrefix(kv.Key, prefix)) == peer })
	if i < 0 {
		return fmt.Errorf("%s offers no memory: it publishes no NIXL metadata", peer)
	}
	agent := strings.TrimPrefix(kvs[i].Key, prefix)
	if err := w.peers.ensure(ctx, agent); err != nil {
		return err
	}
	_, _ = w.nixl.ProvePath(ctx, agent) // the agent keeps what came of it
	return nil
}

// paths lists the peers of the NIXL agent, or those of one worker.
func (w *Worker) paths(peer string) []cluster.Path {
	var out []cluster.Path
	for _, p := range w.nixl.Peers() { // loaded ones of an incarnation stand beside inbound ones
		to := workerOf(p.Name)
		if to == "" || peer != "" && to != peer {
			continue
		}
		out = append(out, pathOf(w.Name(), to, p))
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

// workerOf is the worker whose agent bears a name, which ends with an incarnation.
func workerOf(agent string) string {
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
