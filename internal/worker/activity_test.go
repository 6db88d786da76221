package worker

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
)

// askActivity returns a function that asks a worker over the request plane.
func (w *world) askActivity(r *running) func(limit int) cluster.Activity {
	w.t.Helper()
	ask := w.activityOf(r)
	return func(limit int) cluster.Activity { return ask(protocol.ActivityRequest{Limit: limit}) }
}

// embeddingsAt asks a worker where it would get embeddings.
func (w *world) embeddingsAt(r *running, key blockhash.Key) cluster.EmbeddingsAt {
	w.t.Helper()
	a := w.activityOf(r)(protocol.ActivityRequest{Keys: []blockhash.Key{key}})
	if len(a.Embeddings) != 1 {
		w.t.Fatalf("%s answers %+v", r.Name(), a.Embeddings)
	}
	return a.Embeddings[0]
}

func (w *world) activityOf(r *running) func(protocol.ActivityRequest) cluster.Activity {
	w.t.Helper()
	c := runtimetest.Client(w.t, w.c.Runtime(w.t, "asks "+r.Name()), r.Role().Component(), cluster.EndpointActivity)
	var at cluster.Instance
	eventually(w.t, r.Name()+" tells what it does", func() bool {
		all := c.Instances()
		i := slices.IndexFunc(all, func(inst cluster.Instance) bool { return inst.Worker == r.Name() })
		if i >= 0 {
			at = all[i]
		}
		return i >= 0
	})
	return func(req protocol.ActivityRequest) (a cluster.Activity) {
		w.t.Helper()
		s, err := c.Call(w.t.Context(), at, "activity", nil, req)
		if err != nil {
			w.t.Fatal(err)
		}
		defer s.Close()
		if err := s.Recv(w.t.Context(), &a); err != nil {
			w.t.Fatal(err)
		}
		return a
	}
}

// TestActivity stops the KV of a prompt on its way and asks both ends for it.
func TestActivity(t *testing.T) {
	const promptTokens, blocks = 200, 13 // of all but the last token
	for _, tc := range []struct {
		op        nixl.Op
		kind      cluster.TransferKind
		state     cluster.TransferState // at the prefill worker
		peer      string                // that it knows
		transport string
	}{
		{nixl.Write, cluster.TransferWrite, cluster.TransferActive, "worker-2", "local"},
		{nixl.Read, cluster.TransferRead, cluster.TransferWaits, "", ""},
	} {
		t.Run(string(tc.kind), func(t *testing.T) {
			w, g := newWorld(t), &gates{}
			pre, d := w.start("worker-1", cluster.RolePrefill, gate(g)), w.start("worker-2", cluster.RoleDecode, gate(g))
			eventually(t, "the prefill worker is seen", func() bool { return len(d.sees(cluster.RolePrefill)) == 1 })
			r, h := seeded(t), w.hops()
			demand := func(id string) (tokens []uint32, req protocol.PreprocessedRequest) {
				tokens = prompt(r, promptTokens)
				if req = request(id, tokens, 4); tc.op == nixl.Read {
					req, _ = h.hold("worker-1", req, patience.Soon)
				}
				return tokens, req
			}
			tokens, req := demand("first") // what is made once is made now
			check(t, w.generate(t.Context(), "worker-2", req), tokens, 4)
			met(t, pre, d) // the gate would stop that as well
			idle(t, pre, d)
			there, here := w.askActivity(pre), w.askActivity(d)
			open := g.close(tc.op)
			defer open()

			tokens, req = demand("r-1~1")
			var client sync.WaitGroup
			client.Go(func() { check(t, w.generate(t.Context(), "worker-2", req), tokens, 4) })
			eventually(t, "the transfer is stopped", func() bool { return g.waiting() == 1 })

			bytes, none, nothing := blocks*d.plane().BlockBytes(), 0, int64(0)
			out := cluster.Transfer{RequestID: "r-1", Direction: cluster.TransferOut, Peer: tc.peer, Transport: tc.transport, Kind: tc.kind, State: tc.state, Blocks: blocks, Bytes: bytes}
			if tc.op == nixl.Write {
				out.BlocksDone, out.BytesDone = &none, &nothing
			}
			sameTransfers(t, there(0), out)
			var at cluster.Activity
			eventually(t, "the decode worker hears that the transfer has begun", func() bool {
				at = here(0)
				return len(at.Transfers) == 1 && at.Transfers[0].State == cluster.TransferActive
			})
			sameTransfers(t, at, cluster.Transfer{RequestID: "r-1", Direction: cluster.TransferIn, Peer: "worker-1", Transport: "local", Kind: tc.kind, State: cluster.TransferActive, Blocks: blocks, Bytes: bytes})
			at.Sequences[0].AgeMS = 0
			if want := (cluster.Sequence{ID: "r-1~1", RequestID: "r-1", State: cluster.SequenceRemote, PromptTokens: promptTokens, Blocks: blocks}); len(at.Sequences) != 1 || at.SequencesTotal != 1 || at.Sequences[0] != want {
				t.Errorf("sequences %+v of %d, want %+v", at.Sequences, at.SequencesTotal, want)
			}
			open()
			client.Wait()
			eventually(t, "nothing is left", func() bool {
				a, b := there(0), here(0)
				return a.SequencesTotal+a.TransfersTotal+b.SequencesTotal+b.TransfersTotal == 0
			})
		})
	}
}

func sameTransfers(t *testing.T, a cluster.Activity, want cluster.Transfer) {
	t.Helper()
	for i := range a.Transfers {
		a.Transfers[i].AgeMS = 0
	}
	if a.TransfersTotal != 1 || !reflect.DeepEqual(a.Transfers, []cluster.Transfer{want}) || a.At.IsZero() {
		t.Errorf("%s tells of %d transfers: %+v, want %+v", a.Worker, a.TransfersTotal, a.Transfers, want)
	}
}

// A worker with more sequences than an answer lists says how many there are.
func TestActivityIsBounded(t *testing.T) {
	w := newWorld(t)
	slowDecode(time.Millisecond)(&w.opts)
	d := w.start("worker-1", cluster.RoleDecode)
	ask := w.askActivity(d)
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	for i := range 5 {
		clients.Go(func() { w.generate(ctx, "worker-1", request(fmt.Sprint("r", i), []uint32{1, 2, 3}, 1900)) })
	}
	eventually(t, "all run", func() bool { return ask(0).SequencesTotal == 5 })
	if a := ask(2); len(a.Sequences) != 2 || a.SequencesTotal != 5 {
		t.Errorf("two of %d: %+v", a.SequencesTotal, a.Sequences)
	}
	if a := ask(1 << 30); len(a.Sequences) != 5 {
		t.Errorf("of %d: %+v", a.SequencesTotal, a.Sequences)
	}
}
