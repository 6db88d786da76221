package prefill

import (
	"errors"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker/kv"
	"github.com/dynctl/dynctl/internal/worker/role/roletest"
)

// ask is what a decode worker that fits asks for.
func ask(w *Role) protocol.RemotePrefillRequest {
	id := w.KV.Identity()
	return protocol.RemotePrefillRequest{
		ModelSum: id.ModelSum, BlockSize: id.BlockSize, BlockBytes: id.BlockBytes, KVLayout: id.KVLayout, HashSeed: id.HashSeed,
		TokenIDs: make([]uint32, 20), BlockIDs: []int32{1, 2},
	}
}

// start makes the role of a worker.
func start(t *testing.T) *Role {
	t.Helper()
	r, err := newRole(t.Context(), roletest.New(t).Term(t, "worker-1", cluster.RolePrefill))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.End)
	return r.(*Role)
}

// Blocks of the same size may mean something else.
func TestOtherLayoutsAreRefused(t *testing.T) {
	w := start(t)
	req := ask(w)
	if err := w.check(req); err != nil {
		t.Errorf("the same layout: %v", err)
	}
	for _, other := range []string{"", "int8", "bf16/16h"} {
		req.KVLayout = other
		if err := w.check(req); !errors.Is(err, kv.ErrMismatch) {
			t.Errorf("layout %q: err = %v, want ErrMismatch", other, err)
		}
	}
}

// A notification that tells the reading of a hold goes to it; others are not for a prefill
// worker.
func TestReadingsAreHandedOn(t *testing.T) {
	w := start(t)
	read := w.holds.add("t")
	w.Noticed("worker-2.ab", protocol.PrefillNotice{Phase: protocol.PrefillDone, Ticket: "t"})
	if len(read) != 0 {
		t.Error("the end of a prefill is the reading of a hold")
	}
	if w.Idle() == nil {
		t.Error("a hold is nothing in hand")
	}
	w.Noticed("worker-2.ab", protocol.PrefillNotice{Phase: protocol.PrefillRead, Ticket: "t"})
	if len(read) != 1 {
		t.Error("the hold does not hear that it was read")
	}
}
