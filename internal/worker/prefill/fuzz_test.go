package prefill

import (
	"testing"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker/kv/kvtest"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// Whatever a decode worker asks for, it is refused or fits its blocks.
func FuzzPeers(f *testing.F) {
	w := &Role{Term: &role.Term{Worker: "worker-1", KV: kvtest.New(f).Open(f, "worker-1")}, holds: newHolds()}
	good := ask(w)
	if err := w.check(good); err != nil {
		f.Fatal(err)
	}
	for _, v := range []any{good, protocol.JoinRoom{Room: 1, Request: good}} {
		body, err := protocol.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var r protocol.RemotePrefillRequest
		if protocol.Unmarshal(body, &r) == nil {
			if err := w.check(r); err == nil && (len(r.BlockIDs) != w.KV.BlocksOf(len(r.TokenIDs)) || r.ComputedBlocks < 0 || r.ComputedBlocks >= len(r.BlockIDs)) {
				t.Errorf("taken: %+v", r)
			}
		}
		var n protocol.PrefillNotice
		if protocol.Unmarshal(body, &n) == nil {
			w.Noticed("worker-2.0", n) // nobody waits for it
		}
	})
}
