package decode

import (
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker/kv/kvtest"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// Whatever a prefill worker answers, it is refused or fits the prompt.
func FuzzPeers(f *testing.F) {
	w := &Role{Term: &role.Term{Worker: "worker-1", KV: kvtest.New(f).Open(f, "worker-1")}, waiters: newWaiters()}
	good := protocol.DisaggregatedParams{Worker: "worker-2", KVIdentity: w.KV.Identity(), BlockIDs: []int32{1, 2}, Tokens: 20, Ticket: strings.Repeat("0f", 16)}
	prompt := make([]uint32, 21)
	if _, err := w.readable(&good, prompt); err != nil {
		f.Fatal(err)
	}
	body, err := protocol.Marshal(good)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Fuzz(func(t *testing.T, body []byte) {
		var p protocol.DisaggregatedParams
		if protocol.Unmarshal(body, &p) == nil {
			if _, err := w.readable(&p, prompt); err == nil && (p.Tokens != 20 || len(p.BlockIDs) != 2 || p.KVIdentity != w.KV.Identity()) {
				t.Errorf("taken: %+v", p)
			}
		}
		var n protocol.PrefillNotice
		if protocol.Unmarshal(body, &n) == nil {
			w.Noticed("worker-2.0", n) // nobody waits for it
		}
	})
}
