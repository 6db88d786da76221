// Package ondemand does work on a goroutine that exists only while there is any. A process
// with hundreds of workers has thousands of such tasks, nearly all of them idle.
package ondemand

import (
	"context"
	"sync"
	"time"
)

// Task is work that is done whenever it is woken, by one goroutine at a time.
type Task struct {
	work   func(context.Context)
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	running bool
	again   bool        // woken while running
	timer   *time.Timer // nil before the first WakeIn
}

// New returns a task that sleeps. work looks itself for what there is to do; it may find
// nothing. Its context ends with ctx and with Close. The owner must call Close.
func New(ctx context.Context, work func(context.Context)) *Task {
	t := &Task{work: work}
	t.ctx, t.cancel = context.WithCancel(ctx)
	return t
}

// Wake has work begin after this call. Several calls may cause one run. It never blocks, and
// does nothing once the context of the task has ended.
func (t *Task) Wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ctx.Err() != nil:
	case t.running:
		t.again = true
	default:
		t.running = true
		t.wg.Go(t.run)
	}
}

// WakeIn calls Wake after d. It replaces an earlier WakeIn that is still to come.
func (t *Task) WakeIn(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ctx.Err() != nil:
	case t.timer == nil:
		t.timer = time.AfterFunc(d, t.Wake)
	default:
		t.timer.Reset(d)
	}
}

// Close ends the context of the work and waits until it has returned. Work must not call
// it. Closing twice is fine.
func (t *Task) Close() {
	t.cancel()
	t.mu.Lock()
	if t.timer != nil {
		t.timer.Stop()
	}
	t.mu.Unlock()
	t.wg.Wait()
}

func (t *Task) run() {
	for {
		t.work(t.ctx)
		if !t.goOn() {
			return
		}
	}
}

// goOn reports whether the task was woken while it ran.
func (t *Task) goOn() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = t.again && t.ctx.Err() == nil
	t.again = false
	return t.running
}
