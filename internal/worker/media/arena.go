package media

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/sharedmem"
)

// ErrTooLarge means that the embeddings of one part never fit into the memory for transfers.
var ErrTooLarge = errors.New("embeddings are larger than the memory for their transfer")

// arena is memory that NIXL knows, given out in pieces.
type arena struct {
	mem    *sharedmem.Memory
	region *nixl.Region

	mu   sync.Mutex
	free []span        // sorted, apart from each other
	more chan struct{} // closed when a piece came back
	out  int           // pieces given out
}

type span struct{ at, n uint64 }

// align keeps pieces apart by whole cache lines.
const align = 64

// arenaLabel names the memory at peers.
const arenaLabel = "embeddings"

func newArena(agent *nixl.Agent, size int) (*arena, error) {
	mem, err := sharedmem.New("embeddings", size)
	if err != nil {
		return nil, err
	}
	region, err := agent.Register(mem, nixl.DRAM, nixl.WithLabel(arenaLabel))
	if err != nil {
		return nil, errors.Join(err, mem.Close())
	}
	return &arena{mem: mem, region: region, free: []span{{0, region.Len()}}, more: make(chan struct{})}, nil
}

// piece is memory of the arena until put.
type piece struct {
	a    *arena
	span span
	size uint64
}

// take gives out n bytes. It waits for others to put back what they have, until ctx ends.
func (a *arena) take(ctx context.Context, n int) (*piece, error) {
	want := (uint64(n) + align - 1) / align * align
	if want > a.region.Len() {
		return nil, fmt.Errorf("%w: %d of %d bytes", ErrTooLarge, n, a.region.Len())
	}
	for {
		a.mu.Lock()
		for i := range a.free {
			if s := &a.free[i]; s.n >= want {
				got := span{s.at, want}
				if s.at, s.n = s.at+want, s.n-want; s.n == 0 {
					a.free = slices.Delete(a.free, i, i+1)
				}
				a.out++
				a.mu.Unlock()
				return &piece{a, got, uint64(n)}, nil
			}
		}
		more := a.more
		a.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %d bytes for embeddings: %w", n, context.Cause(ctx))
		}
	}
}

// put gives the piece back. Nobody may access it any more.
func (p *piece) put() {
	a := p.a
	a.mu.Lock()
	defer a.mu.Unlock()
	i, _ := slices.BinarySearchFunc(a.free, p.span.at, func(s span, at uint64) int {
		if s.at < at {
			return -1
		}
		return 1
	})
	a.free = slices.Insert(a.free, i, p.span)
	for _, j := range []int{i, i - 1} { // join with what lies behind, then with what lies before
		if j >= 0 && j+1 < len(a.free) && a.free[j].at+a.free[j].n == a.free[j+1].at {
			a.free[j].n += a.free[j+1].n
			a.free = slices.Delete(a.free, j+1, j+2)
		}
	}
	a.out--
	close(a.more)
	a.more = make(chan struct{})
}

// bytes is the memory of the piece.
func (p *piece) bytes() []byte { return p.a.mem.Bytes()[p.span.at:][:p.size:p.size] }

// fill copies rows into the piece.
func (p *piece) fill(rows [][]float32) {
	at := p.bytes()
	for _, row := range rows {
		for i, v := range row {
			binary.LittleEndian.PutUint32(at[4*i:], math.Float32bits(v))
		}
		at = at[4*len(row):]
	}
}

// desc is the piece as NIXL knows it.
func (p *piece) desc() nixl.Desc { return p.a.region.Desc(p.span.at, p.size) }

// idle returns an error if pieces are given out.
func (a *arena) idle() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.out > 0 || len(a.free) != 1 || a.free[0].n != a.region.Len() {
		return fmt.Errorf("%d pieces of the memory for embeddings are in use, %v are free of %d bytes", a.out, a.free, a.region.Len())
	}
	return nil
}

// close frees the memory. The agent is closed.
func (a *arena) close() error { return a.mem.Close() }
