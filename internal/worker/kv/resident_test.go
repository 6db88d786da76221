package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
)

// pages is memory that notes what is made resident.
type pages struct {
	size  int
	takes time.Duration // of each piece
	fail  error
	done  []string // offset+length
}

func (p *pages) Bytes() []byte { return make([]byte, p.size) }
func (p *pages) Close() error  { return nil }
func (p *pages) Populate(off, n int) error {
	time.Sleep(p.takes)
	p.done = append(p.done, fmt.Sprintf("%d+%d", off, n))
	return p.fail
}

// plain is memory that cannot be made resident.
type plain struct{ size int }

func (p plain) Bytes() []byte { return make([]byte, p.size) }
func (p plain) Close() error  { return nil }

// Blocks are made resident once, in pieces, the shares of all ranks, at a quarter of the
// speed that would be possible.
func TestBlocksAreMadeResident(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const blocks, block = 8, residentPiece + residentPiece/2
		ranks := []*pages{{size: blocks * block, takes: time.Millisecond}, {size: blocks * block, takes: time.Millisecond}}
		r := newResident(engine.KVPool{ranks[0], ranks[1]}, blocks)
		begin := time.Now()
		r.ensure(t.Context(), []int32{5, 0})
		if took, want := time.Since(begin), 8*time.Millisecond+7*residentRest*time.Millisecond; took != want {
			t.Errorf("took %s, want %s", took, want)
		}
		r.ensure(t.Context(), []int32{0, 5})
		want := []string{
			fmt.Sprintf("%d+%d", 5*block, residentPiece), fmt.Sprintf("%d+%d", 5*block+residentPiece, residentPiece/2),
			fmt.Sprintf("%d+%d", 0, residentPiece), fmt.Sprintf("%d+%d", residentPiece, residentPiece/2),
		}
		for i, m := range ranks {
			if !slices.Equal(m.done, want) {
				t.Errorf("rank %d: %q, want %q", i, m.done, want)
			}
		}
	})
}

// It ends when nobody waits for the blocks any more, and goes on with the others later.
func TestMakingResidentIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &pages{size: 4096, takes: time.Millisecond}
		r := newResident(engine.KVPool{m}, 4)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
		defer cancel()
		r.ensure(ctx, []int32{1, 2, 3})
		r.ensure(t.Context(), []int32{1, 2, 3})
		if want := []string{"1024+1024", "2048+1024", "3072+1024"}; !slices.Equal(m.done, want) {
			t.Errorf("%q, want %q", m.done, want)
		}
	})
}

// Where the system cannot do it, it is tried once.
func TestNothingIsMadeResident(t *testing.T) {
	m := &pages{size: 4096, fail: errors.ErrUnsupported}
	r := newResident(engine.KVPool{m}, 4)
	for range 3 {
		r.ensure(t.Context(), []int32{0, 1})
	}
	if len(m.done) != 1 {
		t.Errorf("tried %q", m.done)
	}
	newResident(engine.KVPool{plain{4096}}, 4).ensure(t.Context(), []int32{0})
}
