package route

import (
	"errors"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
)

// transfer carries a prompt from a prefill worker to a decode worker.
type transfer struct {
	f        *fleet
	from, to *worker
	room     *engine.Reservation // once the decode worker has it
	held     *engine.Held        // once the prompt is computed
	local    bool                // nothing is wanted
	begun    bool
}

// begin has the KV arrive once there is room and the prompt is computed. At most the last
// tokens of it are still to be written then.
func (t *transfer) begin(last int) error {
	switch {
	case t.held != nil && t.local:
		return t.end()
	case t.held == nil || t.room == nil || t.begun:
		return nil
	}
	t.begun = true
	tail := float64(min(t.room.Wanted()-t.room.CachedBlocks*BlockSize, last)) / transferRate
	t.f.at(t.f.now+time.Duration(tail*float64(time.Second)), func() error {
		t.room.Start(t.from.name)
		return errors.Join(t.end(), t.f.step(t.to))
	})
	return nil
}

// end gives the blocks of the prefill worker back.
func (t *transfer) end() error {
	t.held.Release()
	t.f.open--
	return t.f.step(t.from)
}
