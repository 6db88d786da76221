package cpu

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
)

func prefillTurn() *turn {
	t := newTurn()
	t.prefill = true
	return t
}

// take acquires a turn in a goroutine and tells when it came.
func take(t *testing.T, s *turns, x *turn) <-chan error {
	t.Helper()
	got := make(chan error, 1)
	go func() { got <- s.acquire(t.Context(), x, false) }()
	synctest.Wait()
	return got
}

func mustTake(t *testing.T, s *turns, x *turn) {
	t.Helper()
	if err := s.acquire(t.Context(), x, false); err != nil {
		t.Fatal(err)
	}
}

func came(got <-chan error) bool {
	synctest.Wait()
	select {
	case err := <-got:
		return err == nil
	default:
		return false
	}
}

func TestTurnsDecodeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s turns
		first, prefill, decode1, decode2 := prefillTurn(), prefillTurn(), newTurn(), newTurn()
		mustTake(t, &s, first)
		gotPrefill := take(t, &s, prefill)
		got1 := take(t, &s, decode1)
		got2 := take(t, &s, decode2)
		s.release(first)
		if !came(got1) || came(got2) || came(gotPrefill) {
			t.Fatal("the first decode step should have the device")
		}
		s.release(decode1)
		if !came(got2) || came(gotPrefill) {
			t.Fatal("the second decode step should have the device")
		}
		s.release(decode2)
		if !came(gotPrefill) {
			t.Fatal("the prefill step should have the device")
		}
		s.release(prefill)
	})
}

func TestTurnsPrefillYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s turns
		prefill, other, decode := prefillTurn(), prefillTurn(), newTurn()
		mustTake(t, &s, prefill)
		if s.mustYield(prefill) {
			t.Error("yields though nobody waits")
		}
		gotOther := take(t, &s, other)
		if s.mustYield(prefill) {
			t.Error("yields to another prefill step")
		}
		got := take(t, &s, decode)
		if !s.mustYield(prefill) {
			t.Error("does not yield to a decode step")
		}
		if s.mustYield(decode) {
			t.Error("decode yields")
		}
		s.release(prefill)
		if !came(got) {
			t.Fatal("the decode step should have the device")
		}
		back := make(chan error, 1)
		go func() { back <- s.acquire(t.Context(), prefill, true) }()
		synctest.Wait()
		s.release(decode)
		if !came(back) || came(gotOther) {
			t.Fatal("the interrupted prefill step should go on before the other one")
		}
		s.release(prefill)
		if !came(gotOther) {
			t.Fatal("the other prefill step should have the device")
		}
		s.release(other)
	})
}

// TestTurnsShare keeps two decode backends busy all the time beside a prefill
// step, which must get its share and no more.
func TestTurnsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s turns
		ctx, cancel := context.WithCancel(t.Context())
		var decodeTime, prefillTime time.Duration
		var wait sync.WaitGroup
		const step = 10 * time.Millisecond
		for range 2 {
			wait.Go(func() {
				x := newTurn()
				for s.acquire(ctx, x, false) == nil {
					time.Sleep(step)
					decodeTime += step // the device is ours
					s.release(x)
				}
			})
		}
		wait.Go(func() {
			x := prefillTurn()
			for front := false; s.acquire(ctx, x, front) == nil; front = true {
				for !s.mustYield(x) && ctx.Err() == nil {
					time.Sleep(100 * time.Microsecond) // one item
					prefillTime += 100 * time.Microsecond
				}
				s.release(x)
			}
		})
		time.Sleep(10 * time.Second)
		cancel()
		wait.Wait()
		share := float64(prefillTime) / float64(prefillTime+decodeTime)
		if share < 0.49 || share > 0.51 {
			t.Errorf("prefill had %.3f of the device, want half", share)
		}
	})
}

func TestTurnsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s turns
		holder, waiter := newTurn(), newTurn()
		mustTake(t, &s, holder)
		cause := errors.New("client left")
		ctx, cancel := context.WithCancelCause(t.Context())
		got := make(chan error, 1)
		go func() { got <- s.acquire(ctx, waiter, false) }()
		synctest.Wait()
		cancel(cause)
		if err := <-got; err != cause {
			t.Errorf("err = %v, want the cause", err)
		}
		if err := s.acquire(ctx, waiter, false); err != cause {
			t.Errorf("cancelled before: err = %v, want the cause", err)
		}
		s.release(waiter) // does not hold it: nothing happens
		s.release(holder)
		mustTake(t, &s, waiter)
		s.release(waiter)
	})
}

// TestTurnsCancelRace cancels waiting steps at the moment of the hand-over.
func TestTurnsCancelRace(t *testing.T) {
	var s turns
	a, b := newTurn(), newTurn()
	for range 2000 {
		mustTake(t, &s, a)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() { got <- s.acquire(ctx, b, false) }()
		go cancel()
		s.release(a)
		if err := <-got; err == nil {
			s.release(b)
		}
		cancel()
	}
	mustTake(t, &s, a) // the device is free
	s.release(a)
	if len(b.granted) != 0 || s.decodeWaits.Load() {
		t.Error("a grant was left behind")
	}
}

func TestTurnsClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s turns
		holder := newTurn()
		mustTake(t, &s, holder)
		waiting := []<-chan error{take(t, &s, newTurn()), take(t, &s, prefillTurn())}
		closed := make(chan struct{})
		go func() { s.close(); close(closed) }()
		synctest.Wait()
		for i, got := range waiting {
			if err := <-got; !errors.Is(err, ErrClosed) {
				t.Errorf("waiter %d: err = %v, want ErrClosed", i, err)
			}
		}
		select {
		case <-closed:
			t.Error("close did not wait for the running step")
		default:
		}
		s.release(holder)
		<-closed
		if err := s.acquire(t.Context(), holder, false); !errors.Is(err, ErrClosed) {
			t.Errorf("after close: err = %v, want ErrClosed", err)
		}
		s.close()
	})
}

func TestTileTokens(t *testing.T) {
	for level, want := range map[kernel.Level][]int{
		kernel.Portable: {16, 16, 4, 2, 2, 2},
		kernel.AVX2:     {18, 18, 18, 16, 6, 6},
		kernel.AVX512:   {18, 18, 18, 16, 6, 6},
	} {
		var got []int
		for _, pos := range []int{0, 255, 1023, 2047, 8191, 1 << 20} {
			got = append(got, tileTokens(level, false, 2, pos))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: tiles of %v tokens, want %v", level, got, want)
		}
		if tileTokens(level, false, 64, 0) != 1 {
			t.Errorf("%s: a tile has at least one token", level)
		}
	}
	if one, two := tileTokens(kernel.AVX512, false, 1, 4095), tileTokens(kernel.AVX512, true, 1, 4095); two != 2*one {
		t.Errorf("tiles of %d tokens in pairs and of %d else", two, one)
	}
}
