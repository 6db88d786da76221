package frontend

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kvindex"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
)

// All that is decided about a request at one time is decided by one lookup, and the next
// decision by another one.
func TestOneLookupForADecision(t *testing.T) {
	w := newWorld(t)
	pre, dec := w.prefiller("worker-1", holds("worker-1", nil)), w.fake("worker-2", say("abc"))
	f := w.routed(routing(), 1, 1)
	prompt := strings.Repeat("x", 4*testBlock)
	g := f.newGeneration(f.registry.find(testModel), protocol.PreprocessedRequest{TokenIDs: tokens(prompt)}, nil)
	look := func() (prefill, decode, reusable int) {
		candidates := g.prefillCandidates(f.prefills.Instances(), nil)
		_, reusable = g.describePrefill(candidates)
		_, _, v, _ := g.view(new([]router.Candidate))
		return candidates[0].Overlap.Blocks(), v.Candidates[0].Overlap.Blocks(), reusable
	}
	f.cached(dec, prompt, 2)
	if p, d, reusable := look(); p != 0 || d != 2 || reusable != 2 {
		t.Errorf("%d and %d blocks, %d reusable; want 0, 2 and 2", p, d, reusable)
	}
	f.cached(dec, prompt, 4)
	f.cached(pre, prompt, 4)
	if p, d, reusable := look(); p != 0 || d != 2 || reusable != 2 {
		t.Errorf("in the same decision: %d and %d blocks, %d reusable", p, d, reusable)
	}
	_, flight, err := g.pick()
	flight.End()
	// A prefill worker computes all but the last token, and so no more than 3 whole blocks.
	if p, d, reusable := look(); err != nil || p != 3 || d != 4 || reusable != 3 {
		t.Errorf("after the decision: %d and %d blocks, %d reusable, %v; want 3, 4 and 3", p, d, reusable, err)
	}
}

// The decode worker is chosen by a new lookup when the prefill worker has taken its time.
func TestLookupAfterTheFirstHop(t *testing.T) {
	w := newWorld(t)
	prompt := strings.Repeat("x", 4*testBlock)
	var meanwhile func()
	hold := holds("worker-1", nil)
	w.prefiller("worker-1", func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		meanwhile()
		return hold(ctx, req, send)
	})
	dec := w.fake("worker-2", say("abc"))
	f := w.routed(routing(), 1, 1)
	meanwhile = func() { f.cached(dec, prompt, 3) }
	wholeAnswer(t, f.post("/v1/completions", textBody(body{"prompt": prompt})))
	decided := f.decisions.find("", 2)
	if len(decided) != 2 || decided[1].Phase != cluster.RoleDecode || decided[1].Predicted != 3 {
		t.Errorf("%+v; want a decode decision that predicts 3 blocks", decided)
	}
}

// Decode workers hear of the mean prefill worker, as far as prefill workers have told.
func TestPrefillHints(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("abc"))
	c := w.routed(routing(), 0, 1).caches
	of := map[cluster.InstanceID]cluster.RuntimeConfig{}
	for id := cluster.InstanceID(11); id <= 13; id++ {
		c.came(id, fmt.Sprint("worker-", id))
		of[id] = cluster.RuntimeConfig{}
	}
	tell := func(id cluster.InstanceID, s cluster.WorkerStats) {
		c.status(cluster.WorkerStatus{InstanceID: id, BlockBytes: 1000, Stats: s})
	}
	tell(11, cluster.WorkerStats{BlockSize: 16, PrefillRate: 100, Prefilling: 1, PrefillTokens: 500, TransferBytesTotal: 1000, TransferNanosTotal: uint64(time.Second)})
	tell(12, cluster.WorkerStats{BlockSize: 16, PrefillRate: 300, Prefilling: 2, PrefillTokens: 700})
	has := held{by: []kvindex.Overlap{{Worker: 11, Blocks: [3]int{6, 3, 0}}, {Worker: 99, Blocks: [3]int{50, 0, 0}}}}
	if got, want := c.prefillHints(of, has, 16), (protocol.PrefillHints{Rate: 200, TransferRate: 16, Prompts: 1.5, Waiting: 600, Cached: 48}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := c.prefillHints(nil, has, 16); got != (protocol.PrefillHints{}) {
		t.Errorf("without prefill workers: %+v", got)
	}
}
