package ucx

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/nixl/ucx/ucp"
)

// engine is the goroutine that owns the UCX workers of an agent, on a thread of its
// own, and with them all connections: nothing below it needs a lock. Others ask it to
// do things.
type engine struct {
	lib *ucp.Library
	ctx *ucp.Context

	wakeR, wakeW int
	done         chan struct{} // closed when run has returned

	mu      sync.Mutex
	queue   []func()
	stopped bool // nothing is queued any more

	// Of the goroutine.
	next   []func() // of the next tick
	ports  map[*port]struct{}
	now    time.Time // of this round
	ticked time.Time
	fds    []unix.PollFd
	polled []*port
}

func newEngine(lib *ucp.Library, ctx *ucp.Context) (*engine, error) {
	e := &engine{lib: lib, ctx: ctx, done: make(chan struct{}), ports: map[*port]struct{}{}, now: time.Now()}
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		return nil, os.NewSyscallError("pipe", err)
	}
	e.wakeR, e.wakeW = p[0], p[1]
	for _, fd := range p {
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, os.NewSyscallError("fcntl", err)
		}
	}
	return e, nil
}

// do queues f for the goroutine; false after it has stopped. What is queued is bounded
// by what an agent may post, and by what a peer may ask for.
func (e *engine) do(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return false
	}
	e.queue = append(e.queue, f)
	if len(e.queue) == 1 {
		_, _ = unix.Write(e.wakeW, []byte{0}) // a full pipe wakes as well
	}
	return true
}

// call runs f on the goroutine and waits for it; false after it has stopped.
func (e *engine) call(f func()) bool {
	done := make(chan struct{})
	if !e.do(func() { f(); close(done) }) {
		return false
	}
	<-done
	return true
}

// run serves until stop is called.
func (e *engine) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(e.done)
	for {
		e.now = time.Now()
		busy := e.runQueue()
		if e.stopping() {
			return
		}
		for p := range e.ports {
			if p.hot {
				busy = p.poll() || busy
			}
		}
		if every := e.tick(); e.now.Sub(e.ticked) >= every {
			e.ticked = e.now
			next := e.next
			e.next = nil
			for _, f := range next {
				f()
			}
			for p := range e.ports {
				p.hot = true // UCX may miss a wake-up
				p.owner.tick(e.now)
			}
		}
		if !busy && e.arm() {
			e.sleep()
		}
	}
}

// later runs f at the next tick.
func (e *engine) later(f func()) { e.next = append(e.next, f) }

func (e *engine) tick() time.Duration {
	if len(e.ports) > 0 || len(e.next) > 0 {
		return tick
	}
	return idleTick
}

func (e *engine) runQueue() (busy bool) {
	e.mu.Lock()
	queue := e.queue
	e.queue = nil
	e.mu.Unlock()
	for _, f := range queue {
		f()
	}
	return len(queue) > 0
}

// stop ends run after what is queued; ports must be closed before.
func (e *engine) stop() {
	e.do(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.stopped = true
	})
	<-e.done
	_ = unix.Close(e.wakeR)
	_ = unix.Close(e.wakeW)
}

func (e *engine) stopping() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stopped
}

// arm prepares all workers for sleep; false if one has something to do.
func (e *engine) arm() bool {
	quiet := true
	for p := range e.ports {
		if !p.hot {
			continue
		}
		switch ok, err := p.w.Arm(); {
		case err != nil:
			p.fail(err)
			quiet = false
		case ok:
			p.hot = false
		default:
			quiet = false
		}
	}
	return quiet
}

// sleep waits for an event, a request of another goroutine, or the next tick.
func (e *engine) sleep() {
	e.fds = append(e.fds[:0], unix.PollFd{Fd: int32(e.wakeR), Events: unix.POLLIN})
	e.polled = e.polled[:0]
	for p := range e.ports {
		e.fds = append(e.fds, unix.PollFd{Fd: int32(p.w.EventFD()), Events: unix.POLLIN})
		e.polled = append(e.polled, p)
	}
	wait := max(e.tick()-time.Since(e.ticked), 0)
	n, err := unix.Poll(e.fds, int(wait.Milliseconds())+1)
	if err != nil || n == 0 {
		return
	}
	if e.fds[0].Revents != 0 {
		var b [64]byte
		_, _ = unix.Read(e.wakeR, b[:])
	}
	for i, p := range e.polled {
		p.hot = p.hot || e.fds[i+1].Revents != 0
	}
}

// finished reports whether a request has ended, and how.
func (e *engine) finished(r ucp.Request) (bool, error) {
	done, err := e.lib.Test(r)
	if err != nil {
		err = fmt.Errorf("transfer: %w", err)
	}
	return done, err
}
