package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/events"
)

// depths is a queue of which only the depth is asked.
type depths struct {
	events.WorkQueue
	mu    sync.Mutex
	now   int
	err   error
	asked int
}

func (d *depths) Waiting(context.Context) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	return d.now, d.err
}

func (d *depths) set(now int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now, d.err = now, err
}

// questions returns how many there were since the last call.
func (d *depths) questions() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, d.asked = d.asked, 0
	return n
}

// askingNode is a node that follows the depth.
type askingNode struct {
	*queueDepth
	queue *depths
	stop  func()
}

func followDepth(t *testing.T, bus events.Bus, name string, q *depths) *askingNode {
	ctx, cancel := context.WithCancel(t.Context())
	n := &askingNode{queueDepth: &queueDepth{queue: q, bus: bus, subject: "depths", node: name, log: slog.New(slog.DiscardHandler)}, queue: q}
	done := make(chan struct{})
	go func() { defer close(done); n.run(ctx) }()
	n.stop = func() { cancel(); <-done }
	return n
}

func TestQueueDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := events.NewMemory()
		q := &depths{now: 5}
		d := followDepth(t, bus, "node", q)
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
		d.stop()
		_ = bus.Close()
	})
}

// One of many nodes asks, all of them know, and another one asks when that node is gone or
// cannot ask.
func TestOneNodeAsksForTheDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := events.NewMemory()
		var nodes []*askingNode
		for i := range 20 {
			nodes = append(nodes, followDepth(t, bus, fmt.Sprintf("node-%02d", i), &depths{now: 1}))
		}
		asking := func() (who []string) {
			for _, n := range nodes {
				n.queue.questions()
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			for _, n := range nodes {
				if n.queue.questions() > 0 {
					who = append(who, n.node)
				}
			}
			return who
		}
		known := func(now int, but int) {
			t.Helper()
			for _, n := range nodes {
				n.queue.set(now, nil)
			}
			time.Sleep(depthEvery + time.Millisecond)
			synctest.Wait()
			for i, n := range nodes {
				if n.get() != now && i >= but {
					t.Errorf("%s knows of %d, want %d", n.node, n.get(), now)
				}
			}
		}
		time.Sleep(2 * depthTold) // they begin at once, and hear each other
		if who := asking(); len(who) != 1 || who[0] != "node-00" {
			t.Errorf("%v ask", who)
		}
		known(42, 0)
		nodes[0].stop()
		time.Sleep(2 * depthSilence)
		if who := asking(); len(who) != 1 || who[0] == "node-00" {
			t.Errorf("%v ask after the first one has left", who)
		}
		known(7, 1)
		lost := asking()[0]
		for _, n := range nodes {
			if n.node == lost {
				n.queue.set(0, events.ErrUnavailable)
			}
		}
		time.Sleep(2 * depthSilence)
		if who := asking(); len(who) != 1 || who[0] == lost {
			t.Errorf("%v ask after %s has lost its queue", who, lost)
		}
		for _, n := range nodes {
			n.stop()
		}
		_ = bus.Close()
	})
}
