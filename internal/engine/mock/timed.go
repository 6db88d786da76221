package mock

import (
	"context"
	"math"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/kvlayout"
	"github.com/dynctl/dynctl/internal/protocol"
)

// Timed is a backend without contents, for simulations in virtual time: it has no KV memory,
// computes nothing and does not wait. It is told which tokens follow, and how long a step
// takes; [Timed.Busy] says so after it, and whoever runs the engine advances its clock.
//
// It takes every token id and draws by itself, so requests for log probabilities, which need
// logits, are not for it.
type Timed struct {
	BlockSize  int
	MaxContext int // 0: no bound
	// Took returns how long a step takes that computes a batch. The entries that want a token
	// have it already.
	Took func(batch []engine.BatchSeq) time.Duration
	// Token returns the token that follows an entry.
	Token func(c *engine.Choice) uint32

	busy time.Duration
}

// Info implements engine.Backend.
func (t *Timed) Info() engine.BackendInfo {
	most := t.MaxContext
	if most == 0 {
		most = math.MaxInt32
	}
	return engine.BackendInfo{
		Device: "virtual:0", DeviceName: "timed", VocabSize: math.MaxUint32, TokenLimit: math.MaxUint32, MaxContext: most, TensorParallel: 1,
		KV: kvlayout.Shape{BlockSize: t.BlockSize},
	}
}

// AllocKV implements engine.Backend. The pool has no memory.
func (t *Timed) AllocKV(int) (engine.KVPool, error) { return nil, nil }

// Step implements engine.Backend.
func (t *Timed) Step(_ context.Context, batch []engine.BatchSeq) error {
	for i := range batch {
		if c := batch[i].Choice; c != nil {
			c.Token = t.Token(c)
		}
	}
	t.busy = t.Took(batch)
	return nil
}

// Chooses implements engine.Chooser: all tokens are chosen here.
func (t *Timed) Chooses(*protocol.SamplingOptions) bool { return true }

// Busy implements engine.BusyTimer.
func (t *Timed) Busy() time.Duration { return t.busy }

// Close implements engine.Backend.
func (t *Timed) Close() error { return nil }
