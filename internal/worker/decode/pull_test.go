package decode

import (
	"errors"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker/kv"
	"github.com/dynctl/dynctl/internal/worker/role/roletest"
)

// start makes the role of a worker in a world.
func start(t testing.TB, world *roletest.World, worker string) *Role {
	t.Helper()
	r, err := newRole(t.Context(), world.Term(t, worker, cluster.RoleDecode))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.End)
	return r.(*Role)
}

// Two workers that cannot exchange blocks are both named.
func TestReadableNamesBothSides(t *testing.T) {
	d := start(t, roletest.New(t), "worker-2")
	good := func() *protocol.DisaggregatedParams {
		return &protocol.DisaggregatedParams{
			Worker: "worker-1", KVIdentity: d.KV.Identity(), BlockIDs: []int32{4, 5}, Tokens: 17, Ticket: strings.Repeat("ab", 16),
		}
	}
	tokens := make([]uint32, 18)
	if _, err := d.readable(good(), tokens); err != nil {
		t.Fatalf("what fits is refused: %v", err)
	}
	for name, change := range map[string]func(*protocol.DisaggregatedParams){
		"model digest": func(p *protocol.DisaggregatedParams) { p.ModelSum = "x" },
		"block size":   func(p *protocol.DisaggregatedParams) { p.BlockSize *= 2 },
		"KV layout":    func(p *protocol.DisaggregatedParams) { p.KVLayout = "x" },
		"block bytes":  func(p *protocol.DisaggregatedParams) { p.BlockBytes++ },
		"hash seed":    func(p *protocol.DisaggregatedParams) { p.HashSeed = 1 },
		"tokens":       func(p *protocol.DisaggregatedParams) { p.Tokens = 16 },
		"blocks":       func(p *protocol.DisaggregatedParams) { p.BlockIDs = p.BlockIDs[:1] },
	} {
		p := good()
		change(p)
		_, err := d.readable(p, tokens)
		if !errors.Is(err, kv.ErrMismatch) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "worker-1") || !strings.Contains(err.Error(), "worker-2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
