package decode

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/kv"
	"github.com/dynctl/dynctl/internal/worker/kv/kvtest"
	"github.com/dynctl/dynctl/internal/worker/role/roletest"
)

// three is a short request.
var three = protocol.PreprocessedRequest{
	RequestID: "a", Model: "mock", ModelSum: kvtest.Digest, TokenIDs: []uint32{1, 2, 3}, Stop: protocol.StopConditions{MaxTokens: 10},
}

// Workers whose KV means something else refuse each other's sequences.
func TestHandoverMismatch(t *testing.T) {
	d := start(t, roletest.New(t), "worker-1")
	good := protocol.HandoverOffer{
		Request: three, Worker: "worker-2", BlockSize: d.KV.BlockSize(), BlockBytes: d.KV.BlockBytes(),
		KVLayout: d.KV.Identity().KVLayout, HashSeed: cluster.DefaultHashSeed, MaxModelLen: 2048,
	}
	if err := d.checkOffer(&good); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*protocol.HandoverOffer){
		"model digest": func(o *protocol.HandoverOffer) { o.Request.ModelSum = "sha256:other" },
		"block size":   func(o *protocol.HandoverOffer) { o.BlockSize = 32 },
		"KV layout":    func(o *protocol.HandoverOffer) { o.KVLayout = "other" },
		"block bytes":  func(o *protocol.HandoverOffer) { o.BlockBytes++ },
		"hash seed":    func(o *protocol.HandoverOffer) { o.HashSeed++ },
		"may get":      func(o *protocol.HandoverOffer) { o.Request.Stop.MaxTokens, o.MaxModelLen = 5000, 4096 },
	} {
		bad := good
		change(&bad)
		if err := d.checkOffer(&bad); !errors.Is(err, kv.ErrMismatch) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	d.Taints = []string{"zone=a", "fast"}
	for taint, takes := range map[string]bool{"fast": true, "slow": false} {
		o := good
		o.Request.RequiredTaints = []string{"zone=a", taint}
		if err := d.checkOffer(&o); (err == nil) != takes || !takes && handoverReason(err) != "taint" {
			t.Errorf("%s: %v", taint, err)
		}
	}
}

// What a worker grants makes sense, or nothing is written.
func TestBadGrants(t *testing.T) {
	d := start(t, roletest.New(t), "worker-1")
	good := protocol.HandoverGrant{EngineID: "worker-2.x", Ticket: strings.Repeat("ab", 16), BlockIDs: make([]int32, 4), CachedBlocks: 1}
	for name, change := range map[string]func(*protocol.HandoverGrant){
		"":                func(*protocol.HandoverGrant) {},
		"ticket":          func(g *protocol.HandoverGrant) { g.Ticket = "x" },
		"too few blocks":  func(g *protocol.HandoverGrant) { g.BlockIDs = g.BlockIDs[:2] },
		"too many cached": func(g *protocol.HandoverGrant) { g.CachedBlocks = 4 },
		"another agent":   func(g *protocol.HandoverGrant) { g.EngineID = "worker-3.x" },
		"negative":        func(g *protocol.HandoverGrant) { g.CachedBlocks = -1 },
	} {
		l := &leaving{w: d, known: 50, grant: good, to: candidate{HandoverRoom: protocol.HandoverRoom{EngineID: "worker-2.x"}}}
		change(&l.grant)
		if err := l.check(); (err == nil) != (name == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A caller that hears nothing is no success, nor is a request whose output cannot be
// constrained as it was.
func TestHandoverAnswers(t *testing.T) {
	world := roletest.New(t)
	d := start(t, world, "worker-1")
	gone := errors.New("the caller is gone")
	body, err := protocol.Marshal(protocol.HandoverRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.serveHandover(t.Context(), &requestplane.Request{Body: body}, func(any) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("room told to nobody: %v", err)
	}
	offer := protocol.HandoverOffer{
		Request: three, Worker: "worker-2", BlockSize: d.KV.BlockSize(), BlockBytes: d.KV.BlockBytes(),
		KVLayout: d.KV.Identity().KVLayout, HashSeed: cluster.DefaultHashSeed, MaxModelLen: 2048, Deadline: time.Now().Add(time.Second),
	}
	offer.Request.Guided = &protocol.Guided{Kind: "regex", Text: "a"}
	granted := func(m any) error { t.Errorf("granted: %+v", m); return gone }
	if err := d.takeOver(t.Context(), &offer, granted); err == nil || errors.Is(err, gone) {
		t.Errorf("takes over a sequence without its constraint: %v", err)
	}
	if text := world.Scrape(); !regexp.MustCompile(`handovers_total\{[^}]*direction="in"[^}]*outcome="refused"[^}]*\} 1`).MatchString(text) {
		t.Errorf("one refusal is not counted:\n%s", text)
	}
}

// A sequence is another worker's only when that has said so.
func TestCommitIsAnswered(t *testing.T) {
	world := roletest.New(t)
	d := start(t, world, "worker-1")
	var answer error
	other := world.Runtime(t, "worker-2")
	_, err := other.Serve(t.Context(), cluster.RoleDecode.Component(), cluster.EndpointHandover, func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		if answer != nil {
			return answer
		}
		return send(protocol.HandoverCommitted{})
	})
	if err != nil {
		t.Fatal(err)
	}
	l := &leaving{w: d, x: &engine.Export{RequestID: "a"}}
	if err := d.others.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	l.to.Instance = d.others.Instances()[0]
	if err := l.commit(t.Context(), protocol.HandoverCommit{}); err != nil {
		t.Fatal(err)
	}
	answer = handoverError(requestplane.KindUnavailable, "the sequence is gone")
	if err := l.commit(t.Context(), protocol.HandoverCommit{}); err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("a commit that was refused: %v", err)
	}
}
