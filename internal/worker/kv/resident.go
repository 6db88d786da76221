package kv

import (
	"context"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
)

const (
	// residentPiece is the number of bytes made resident at a time.
	residentPiece = 1 << 20
	// residentRest is the pause before the next piece, in multiples of the time the last
	// one took, so that computation on the same cores goes on.
	residentRest = 3
)

// populater is memory that can be made resident before it is written; see
// sharedmem.Memory.
type populater interface {
	Populate(off, n int) error
}

// resident knows which blocks of a pool have been written or made resident. The first
// write to a page costs far more than the copy itself, and a worker that waits for KV has
// the time for it while the prompt is being computed elsewhere.
type resident struct {
	pool   engine.KVPool
	blocks int

	mu   sync.Mutex
	have []bool // by block
	off  bool   // the system cannot do it
}

func newResident(pool engine.KVPool, blocks int) *resident {
	return &resident{pool: pool, blocks: blocks, have: make([]bool, blocks)}
}

// missing returns the blocks, of some, that may not be resident.
func (r *resident) missing(blocks []int32) (out []int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range blocks {
		if !r.off && !r.have[b] {
			out = append(out, b)
		}
	}
	return out
}

// MakeResident prepares the memory of blocks that will be written, one after the other,
// until ctx ends. Nothing depends on its success.
func (p *Plane) MakeResident(ctx context.Context, blocks []int32) { p.resident.ensure(ctx, blocks) }

// ensure makes blocks resident, one after the other, until ctx ends. Nothing depends on
// its success.
func (r *resident) ensure(ctx context.Context, blocks []int32) {
	var rest time.Duration
	for _, b := range r.missing(blocks) {
		for _, m := range r.pool {
			size := len(m.Bytes()) / r.blocks
			for from, end := int(b)*size, (int(b)+1)*size; from < end; from += residentPiece {
				if !pause(ctx, rest) {
					return
				}
				begin := time.Now()
				if !r.populate(m, from, min(residentPiece, end-from)) {
					return
				}
				rest = residentRest * time.Since(begin)
			}
		}
		r.mu.Lock()
		r.have[b] = true
		r.mu.Unlock()
	}
}

// populate makes a piece resident. Where that fails once nothing is tried again.
func (r *resident) populate(m engine.KVMemory, off, n int) bool {
	p, ok := m.(populater)
	if ok && p.Populate(off, n) == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.off = true
	return false
}

// pause waits, and reports whether ctx still goes on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
