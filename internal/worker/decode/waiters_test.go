package decode

import (
	"testing"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker/role/roletest"
)

// A notification goes to who waits for the prefill; the reading of a hold is not for a
// decode worker.
func TestNoticesAreHandedOn(t *testing.T) {
	w := start(t, roletest.New(t), "worker-1")
	wt := w.waiters.add("t", nil)
	w.Noticed("worker-2.ab", protocol.PrefillNotice{Phase: protocol.PrefillRead, Ticket: "t"})
	if len(wt.notices) != 0 {
		t.Error("the reading of a hold is the end of a prefill")
	}
	w.Noticed("worker-2.ab", protocol.PrefillNotice{Phase: protocol.PrefillDone, Ticket: "t"})
	if len(wt.notices) != 1 {
		t.Error("the waiter does not hear of the end")
	}
}
