package ondemand_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/ondemand"
)

// What is put in before Wake is seen by a run that begins afterwards, one run at a time, and
// no goroutine is left.
func TestEachWakeIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		var mu sync.Mutex
		in, seen, running := 0, 0, 0
		task := ondemand.New(t.Context(), func(context.Context) {
			mu.Lock()
			if running++; running > 1 {
				t.Error("two runs at a time")
			}
			now := in
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			running--
			seen = now
		})
		for range 100 {
			go func() {
				mu.Lock()
				in++
				mu.Unlock()
				task.Wake()
			}()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if seen != 100 {
			t.Errorf("%d of 100 were seen", seen)
		}
		// The runtime counts a goroutine for a moment longer than the bubble has it.
		n := runtime.NumGoroutine()
		for range 10_000 {
			if n <= before {
				break
			}
			runtime.Gosched()
			n = runtime.NumGoroutine()
		}
		if n > before {
			t.Errorf("%d goroutines, %d before", n, before)
		}
		task.Close()
	})
}

func TestWakeIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var at []time.Duration
		task := ondemand.New(t.Context(), func(context.Context) { at = append(at, time.Since(begin)) })
		task.WakeIn(time.Second)
		task.WakeIn(2 * time.Second) // in its place
		time.Sleep(3 * time.Second)
		task.Wake()
		synctest.Wait()
		task.WakeIn(time.Second)
		task.Close()
		time.Sleep(time.Minute)
		if len(at) != 2 || at[0] != 2*time.Second || at[1] != 3*time.Second {
			t.Errorf("runs at %v", at)
		}
	})
}

// Close ends the work under way and waits for it, and there is none afterwards.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs, over := 0, false
		task := ondemand.New(t.Context(), func(ctx context.Context) {
			runs++
			<-ctx.Done()
			time.Sleep(time.Second)
			over = true
		})
		task.Wake()
		synctest.Wait()
		task.Wake()
		task.Close()
		if !over {
			t.Error("Close did not wait")
		}
		task.Wake()
		task.WakeIn(0)
		synctest.Wait()
		task.Close()
		if runs != 1 {
			t.Errorf("%d runs", runs)
		}
	})
}

// A task whose context has ended does nothing any more.
func TestContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		runs := 0
		task := ondemand.New(ctx, func(context.Context) { runs++ })
		task.WakeIn(time.Second)
		cancel()
		task.Wake()
		time.Sleep(time.Minute)
		task.Close()
		if runs > 0 {
			t.Errorf("%d runs", runs)
		}
	})
}
