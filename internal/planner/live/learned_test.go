package live

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/store"
)

func (l *lab) learned() (p profile.Learned) {
	l.t.Helper()
	p, _, err := store.GetJSON[profile.Learned](l.ctx, l.store, cluster.ProfileKey(ns))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		l.t.Fatal(err)
	}
	return p
}

// The store says what is missing, then has the costs by which workers computed, and keeps them when another node leads.
func TestProfileIsKept(t *testing.T) {
	inLab(t, func(l *lab) {
		stop := l.lead("node-1")
		l.serve(20, 4)
		if p := l.learned(); p.Node != "node-1" || p.Time.IsZero() || p.Missing != "The speed of a worker is not known yet: 4 of 5 windows with work were seen" {
			t.Errorf("%+v", p)
		}
		l.serve(120, 4)
		p := l.learned()
		if p.Missing != "" || p.Profile.Validate() != nil || p.Profile.Limits.KVBlocks != 10_000 || p.Profile.Limits.MaxSeqs != 64 || p.Profile.Limits.MaxContext != 160_000 {
			t.Fatalf("%+v", p)
		}
		for _, w := range []profile.Work{{Tokens: 500, ChunkContext: 252_000}, {Decodes: 25, DecodeContext: 25 * 1025}} {
			if got, want := p.Profile.Step.StepSeconds(w), labCosts.StepSeconds(w); math.Abs(got/want-1) > 0.01 {
				t.Errorf("a step of %+v takes %v s, want %v", w, got, want)
			}
		}
		if q := p.Profile.Fitted; q == nil || q.Samples < 20 || q.P95Error > 0.01 {
			t.Errorf("%+v", q)
		}
		if !slices.Equal(p.Unknown, []string{"kv", "overheads.frontend_s", "overheads.delivery_s", "overheads.startup_s", "overheads.flip_s"}) {
			t.Errorf("unknown %v", p.Unknown)
		}
		if age := time.Since(p.Time); age > keepEvery+10*time.Second {
			t.Errorf("it is %s old", age)
		}
		stop()
		defer l.lead("node-2")()
		l.serve(15, 4)
		if q := l.learned(); q.Node != "node-1" || q.Missing != "" {
			t.Errorf("another leader forgets what was known: %+v", q)
		}
		l.serve(120, 4)
		if q := l.learned(); q.Node != "node-2" || q.Missing != "" {
			t.Errorf("another leader learns nothing: %+v", q)
		}
	})
}

func TestLearnedTimes(t *testing.T) {
	var n learned
	for i := range rememberedActions + 3 {
		n.actions([]planner.Duration{{Kind: planner.ActionStart, Took: time.Duration(i) * time.Second}, {Kind: planner.ActionDrain, Took: time.Hour}})
	}
	n.actions([]planner.Duration{{Kind: planner.ActionFlip, Took: 4 * time.Second}, {Kind: planner.ActionFlip, Took: time.Second}})
	v := View{Status: map[string]cluster.WorkerStatus{
		"worker-1": {Model: "m", Role: cluster.RoleDecode, BlockBytes: 1600, Stats: cluster.WorkerStats{BlockSize: 16, TransferBytesTotal: 3e9, TransferNanosTotal: 1e9}},
		"worker-2": {Model: "m", Role: cluster.RolePrefill, BlockBytes: 1600, Stats: cluster.WorkerStats{BlockSize: 16, TransferBytesTotal: 1e9, TransferNanosTotal: 1e9}},
		"worker-3": {Model: "m", Role: cluster.RoleEncode, Stats: cluster.WorkerStats{TransferBytesTotal: 1e9}},
	}}
	p, unknown := n.profile(NewSpeed(), v)
	if p.Overheads.Startup != 18.5 || p.Overheads.Flip != 2.5 || p.KV.BytesPerToken != 100 || p.KV.Bandwidth != 2e9 || p.Name != "m" || len(unknown) != 2 {
		t.Errorf("%+v, unknown %v", p, unknown)
	}
}
