package media

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/local"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
)

func testArena(t testing.TB, size int) *arena {
	t.Helper()
	agent, err := nixl.NewAgent(nixl.Config{Name: "worker-1", Key: nixltest.Key, Transports: []nixl.Transport{local.NewRegistry(1).Transport()}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := newArena(agent, size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(a.idle(), agent.Close(), a.close()); err != nil {
			t.Error(err)
		}
	})
	return a
}

// Pieces never overlap, and what comes back can be given out again as a whole.
func TestArena(t *testing.T) {
	a := testArena(t, 1<<16)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	full, cancel := context.WithCancel(t.Context())
	cancel() // take waits for nobody
	owner := make([]int, 1<<16)
	held := map[int]*piece{}
	for i := 1; i < 4000; i++ {
		if len(held) > 0 && r.IntN(2) == 0 {
			for id, p := range held { // any
				for at := range p.size {
					if owner[p.span.at+at] != id {
						t.Fatalf("byte %d of a piece belongs to another", at)
					}
				}
				delete(held, id)
				p.put()
				break
			}
			continue
		}
		p, err := a.take(full, 1+r.IntN(9000))
		if err != nil {
			continue
		}
		if d := p.desc(); d.Len != p.size || len(p.bytes()) != int(p.size) || p.span.at%align != 0 {
			t.Fatalf("%+v %+v", d, p)
		}
		for at := range p.size {
			owner[p.span.at+at] = i
		}
		held[i] = p
	}
	if len(held) > 0 && a.idle() == nil {
		t.Error("idle with pieces given out")
	}
	for _, p := range held {
		p.put()
	}
	if want := []span{{0, 1 << 16}}; !slices.Equal(a.free, want) {
		t.Errorf("free: %v", a.free)
	}
}

func TestArenaWaits(t *testing.T) {
	a := testArena(t, 1<<16)
	all, err := a.take(t.Context(), 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.take(t.Context(), 1<<16+1); !errors.Is(err, ErrTooLarge) {
		t.Errorf("more than there is: %v", err)
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := a.take(ctx, 1); !errors.Is(err, gone) {
		t.Errorf("none left: %v", err)
	}
	got := make(chan *piece)
	go func() {
		p, err := a.take(t.Context(), 100)
		if err != nil {
			t.Error(err)
		}
		got <- p
	}()
	all.put()
	(<-got).put()
}

// What embeddings cost on their way to another worker, but for the transfer's own part: an
// image of LLaVA 1.5 7B is copied into the arena, from one arena to the other, and out of it.
func BenchmarkCopies(b *testing.B) {
	const n, width = 576, 4096
	a := testArena(b, 2*4*n*width)
	rows := make([][]float32, n)
	for i := range rows {
		rows[i] = make([]float32, width)
	}
	from, err := a.take(b.Context(), 4*n*width)
	if err != nil {
		b.Fatal(err)
	}
	defer from.put()
	to, err := a.take(b.Context(), 4*n*width)
	if err != nil {
		b.Fatal(err)
	}
	defer to.put()
	b.SetBytes(4 * n * width)
	for b.Loop() {
		from.fill(rows)
		copy(to.bytes(), from.bytes())
		rowsOf(to.bytes(), n, width)
	}
}
