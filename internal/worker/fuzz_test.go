package worker

import (
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker/kv/kvtest"
)

// Whatever another worker answers or asks for, it is refused or fits the prompt.
func FuzzPeers(f *testing.F) {
	w := &running{Worker: alone()}
	w.kv = kvtest.New(f).Open(f, "worker-1")
	seed := func(v any) []byte {
		body, err := protocol.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		return body
	}
	id := w.plane().Identity()
	good := protocol.DisaggregatedParams{Worker: "worker-2", KVIdentity: id, BlockIDs: []int32{1, 2}, Tokens: 20, Ticket: strings.Repeat("0f", 16)}
	ask := protocol.RemotePrefillRequest{
		ModelSum: id.ModelSum, BlockSize: id.BlockSize, BlockBytes: id.BlockBytes, KVLayout: id.KVLayout, HashSeed: id.HashSeed,
		TokenIDs: make([]uint32, 20), BlockIDs: []int32{1, 2},
	}
	prompt := make([]uint32, 21)
	if _, err := w.readable(&good, prompt); err != nil {
		f.Fatal(err)
	}
	if err := w.check(ask); err != nil {
		f.Fatal(err)
	}
	f.Add(seed(good))
	f.Add(seed(ask))
	f.Add(seed(protocol.JoinRoom{Room: 1, Request: ask}))
	f.Fuzz(func(t *testing.T, body []byte) {
		var p protocol.DisaggregatedParams
		if protocol.Unmarshal(body, &p) == nil {
			if _, err := w.readable(&p, prompt); err == nil && (p.Tokens != 20 || len(p.BlockIDs) != 2 || p.KVIdentity != id) {
				t.Errorf("taken: %+v", p)
			}
		}
		var r protocol.RemotePrefillRequest
		if protocol.Unmarshal(body, &r) == nil {
			if err := w.check(r); err == nil && (len(r.BlockIDs) != w.plane().BlocksOf(len(r.TokenIDs)) || r.ComputedBlocks < 0 || r.ComputedBlocks >= len(r.BlockIDs)) {
				t.Errorf("taken: %+v", r)
			}
		}
		var n protocol.PrefillNotice
		if protocol.Unmarshal(body, &n) == nil {
			h := newHolds()
			h.read(n) // nobody waits for it
		}
	})
}
