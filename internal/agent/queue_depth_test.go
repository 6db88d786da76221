package agent

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/events"
)

// depths is a queue of which only the depth is asked.
type depths struct {
	events.WorkQueue
	mu  sync.Mutex
	now int
	err error
}

func (d *depths) Depth(context.Context) (events.Depth, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return events.Depth{Pending: d.now, InWork: 99}, d.err
}

func (d *depths) set(now int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now, d.err = now, err
}

func TestQueueDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &depths{now: 5}
		d := newQueueDepth(q)
		if d.get() != 0 {
			t.Errorf("nobody asked yet: %d", d.get())
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); d.run(ctx) }()
		synctest.Wait()
		for _, step := range []struct {
			now  int
			err  error
			want int
		}{{5, nil, 5}, {7, nil, 7}, {0, events.ErrUnavailable, 7}, {2, nil, 2}} {
			q.set(step.now, step.err)
			time.Sleep(2 * depthEvery)
			synctest.Wait()
			if d.get() != step.want {
				t.Errorf("queue of %d (%v): %d, want %d", step.now, step.err, d.get(), step.want)
			}
		}
		cancel()
		<-done
	})
}
