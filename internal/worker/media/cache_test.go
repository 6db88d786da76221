package media

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/patience"
)

func give(n int) func(context.Context) ([][]float32, error) {
	return func(context.Context) ([][]float32, error) { return make([][]float32, n), nil }
}

func fail(context.Context) ([][]float32, error) { return nil, errors.New("computed again") }

// The cache keeps what was used last, within its bytes.
func TestCacheKeepsWhatIsUsed(t *testing.T) {
	c := newCache(10 * rowOverhead)
	key := func(n byte) blockhash.Key { return blockhash.Key{n} }
	for i := range byte(3) {
		if _, hit, err := c.get(t.Context(), key(i), 4, give(4)); err != nil || hit != false {
			t.Fatal(hit, err)
		}
		if rows, hit, err := c.get(t.Context(), key(0), 4, fail); err != nil || !hit || len(rows) != 4 {
			t.Fatalf("after %d: %d rows, %v", i, len(rows), err)
		}
	}
	if _, _, err := c.get(t.Context(), key(1), 4, fail); err == nil {
		t.Error("the one that was used least recently is still there")
	}
	if _, hit, err := c.get(t.Context(), key(2), 4, fail); err != nil || !hit {
		t.Error(err)
	}
	if _, _, err := c.get(t.Context(), key(9), 11, give(11)); err != nil { // larger than the cache
		t.Error(err)
	}
	if st := c.stats(); st.Entries != 2 || st.Bytes != 8*rowOverhead || st.Evicted != 1 || st.Limit != 10*rowOverhead {
		t.Errorf("%+v", st)
	}
	for _, n := range []int{3, 5} {
		if _, _, err := c.get(t.Context(), key(0), n, fail); !errors.Is(err, ErrRows) {
			t.Errorf("%d rows: %v", n, err)
		}
	}
	if _, _, err := c.get(t.Context(), key(8), 5, give(4)); !errors.Is(err, ErrRows) {
		t.Errorf("computed with another number of rows: %v", err)
	}
}

// A computation ends when nobody waits for it any more, and not before.
func TestCacheComputesForThoseWhoWait(t *testing.T) {
	c := newCache(1 << 20)
	var key blockhash.Key
	began, ended := make(chan struct{}), make(chan error, 1)
	release := make(chan struct{})
	load := func(ctx context.Context) ([][]float32, error) {
		close(began)
		select {
		case <-release:
			return make([][]float32, 2), nil
		case <-ctx.Done():
			ended <- context.Cause(ctx)
			return nil, context.Cause(ctx)
		}
	}
	first, cancelFirst := context.WithCancel(t.Context())
	second, cancelSecond := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wait := func(ctx context.Context, f func(context.Context) ([][]float32, error), want error) {
		wg.Go(func() {
			if _, _, err := c.get(ctx, key, 2, f); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		})
	}
	wait(first, load, context.Canceled)
	<-began
	wait(second, fail, context.Canceled)
	patience.Until(t, "both wait", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.calls[key] != nil && c.calls[key].users == 2
	})
	cancelFirst()
	patience.Until(t, "the first one has left", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.calls[key].users == 1
	})
	if len(ended) > 0 {
		t.Fatal("the computation ended with the one that began it")
	}
	cancelSecond()
	if err := <-ended; !errors.Is(err, errUnwanted) {
		t.Errorf("ended by %v", err)
	}
	wg.Wait()

	// A failure is not kept.
	if _, _, err := c.get(t.Context(), key, 2, fail); err == nil {
		t.Error("no error")
	}
	close(release)
	began = make(chan struct{})
	if rows, hit, err := c.get(t.Context(), key, 2, load); err != nil || hit || len(rows) != 2 {
		t.Error(len(rows), hit, err)
	}
	if len(c.calls) != 0 {
		t.Error("calls are left")
	}
}

// What is wrong with the content is so for all who wait for it. Another failure is not: each
// of the others tries for itself.
func TestCacheSharesFailuresOfContent(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want int
	}{{ErrBadContent, 1}, {errors.New("the frontend is gone"), 4}} {
		c := newCache(1 << 20)
		gate := make(chan struct{})
		var calls atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				_, _, err := c.get(t.Context(), blockhash.Key{1}, 2, func(context.Context) ([][]float32, error) {
					calls.Add(1)
					<-gate
					return nil, tc.err
				})
				if !errors.Is(err, tc.err) {
					t.Errorf("%v, want %v", err, tc.err)
				}
			})
		}
		patience.Until(t, "all wait", func() bool { return c.stats().Hits == 3 })
		close(gate)
		wg.Wait()
		if n := int(calls.Load()); n != tc.want {
			t.Errorf("%v: computed %d times, want %d", tc.err, n, tc.want)
		}
	}
}

// A cache that is stopped has ended its computations, and begins none.
func TestCacheStops(t *testing.T) {
	c := newCache(1 << 20)
	began, ended := make(chan struct{}), false
	done := make(chan error, 1)
	go func() {
		_, _, err := c.get(t.Context(), blockhash.Key{1}, 2, func(ctx context.Context) ([][]float32, error) {
			close(began)
			<-ctx.Done()
			ended = true
			return nil, context.Cause(ctx)
		})
		done <- err
	}()
	<-began
	c.stop()
	if !ended || c.computing.Load() != 0 {
		t.Error("a computation goes on")
	}
	if err := <-done; !errors.Is(err, errStopped) {
		t.Error(err)
	}
	if _, _, err := c.get(t.Context(), blockhash.Key{2}, 2, give(2)); !errors.Is(err, errStopped) || !errors.Is(err, ErrNoEncoder) {
		t.Errorf("after its end: %v", err)
	}
}
