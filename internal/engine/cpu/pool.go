package cpu

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/host"
)

// ErrMemory is returned when mapped memory disappeared while it was read: a weight file
// was truncated, or the KV memory was closed during a step.
var ErrMemory = errors.New("mapped memory went away during the step")

// task is a piece of work in n independent items.
type task struct {
	run func(l *lane, item int)
	op  operator
}

// pool distributes the items of one task at a time over the leader, which is the
// goroutine that calls run, and its helpers.
//
// Workers claim items one by one from a shared word, so a helper that the system has
// descheduled delays at most the item it holds. The word packs an epoch, the number of
// items and the next item. A claim swaps the whole word, so it can only succeed while its
// task is open, and the leader leaves a task only after every claimed item is done. A
// token takes hundreds of tasks a few microseconds apart, so helpers spin for a moment
// between tasks before they park.
type pool struct {
	lanes   []*lane // lanes[0] belongs to the leader
	helpers []*helper
	wait    sync.WaitGroup

	claim  atomic.Uint64 // epoch | count | next
	task   atomic.Pointer[task]
	done   atomic.Int64 // items finished
	closed atomic.Bool
	fault  atomic.Pointer[error]

	observer     *observer
	leaderParked atomic.Bool
	leaderWake   chan struct{} // capacity 1

	// cpus are the CPUs that all workers are bound to; nil for none. A bound worker has a
	// thread of its own.
	cpus    []int
	allowed []int // CPUs of the process, to which a leader returns
}

type helper struct {
	parked atomic.Bool
	wake   chan struct{} // capacity 1
}

const (
	itemBits = 22 // up to four million items
	itemMask = 1<<itemBits - 1
	// spinTime is the time that a worker spins before it parks. Waking a parked worker
	// takes some 20 µs.
	spinTime = 50 * time.Microsecond
)

func pack(epoch uint64, count, next int) uint64 {
	return epoch<<(2*itemBits) | uint64(count)<<itemBits | uint64(next)
}

func unpack(claim uint64) (epoch uint64, count, next int) {
	return claim >> (2 * itemBits), int(claim >> itemBits & itemMask), int(claim & itemMask)
}

func newPool(workers int) *pool { return newBoundPool(workers, nil) }

// newBoundPool makes a pool whose workers are all bound to cpus; nil binds none.
func newBoundPool(workers int, cpus []int) *pool {
	p := &pool{leaderWake: make(chan struct{}, 1), observer: newObserver()}
	if len(cpus) > 0 {
		p.cpus, p.allowed = cpus, host.AllowedCPUs()
	}
	for range workers {
		p.lanes = append(p.lanes, new(lane))
	}
	for _, l := range p.lanes[1:] {
		h := &helper{wake: make(chan struct{}, 1)}
		p.helpers = append(p.helpers, h)
		p.wait.Go(func() { p.help(h, l) })
	}
	return p
}

// close stops the helpers and waits for them. No task may be running.
func (p *pool) close() {
	p.closed.Store(true)
	p.wakeHelpers(len(p.helpers))
	p.wait.Wait()
}

// enter binds the calling goroutine, which will lead tasks, to the pool's CPUs. leave
// undoes that.
func (p *pool) enter() {
	if p.cpus != nil {
		runtime.LockOSThread()
		_ = host.Bind(p.cpus)
	}
}

func (p *pool) leave() {
	// A thread that cannot return stays with its goroutine, so that it does not slow
	// others.
	if p.cpus != nil && host.Bind(p.allowed) == nil {
		runtime.UnlockOSThread()
	}
}

// makeRoom lets the rest of the process run between two items. For a bound worker the
// system does that: yielding would take two threads and twice the time of waking one.
func (p *pool) makeRoom() {
	if p.cpus == nil {
		runtime.Gosched()
	}
}

// run computes the items [from, count), at most itemMask. It returns count, or the first
// item that was not started after stop returned true. Calls must not overlap.
func (p *pool) run(t *task, from, count int, stop func() bool) int {
	if len(p.helpers) == 0 || count-from == 1 {
		for i := from; i < count; i++ {
			if i > from && stop() {
				return i
			}
			p.exec(t, p.lanes[0], i)
		}
		return count
	}
	if count > itemMask {
		panic(fmt.Sprintf("cpu: task of %d items, at most %d", count, itemMask))
	}
	p.done.Store(int64(from))
	p.task.Store(t)
	epoch, _, _ := unpack(p.claim.Load())
	p.claim.Store(pack(epoch+1, count, from))
	p.wakeHelpers(count - from - 1)

	end := count
	for {
		claim := p.claim.Load()
		epoch, n, next := unpack(claim)
		if next == n {
			break
		}
		if stop() {
			if p.claim.CompareAndSwap(claim, pack(epoch, n, n)) {
				end = next
				break
			}
			continue
		}
		if p.claim.CompareAndSwap(claim, claim+1) {
			p.exec(t, p.lanes[0], next)
			p.done.Add(1)
			p.makeRoom()
		}
	}
	p.await(int64(end))
	return end
}

// await waits until n items are done.
//
// Who parks says so before it looks once more, and who has news looks after it has told: one of
// both sees the other. The former swaps, where a store would do on every processor: the emulator
// qemu-user has loads of arm64 overtake stores that release.
func (p *pool) await(n int64) {
	spin := spinner{bound: p.cpus != nil}
	for p.done.Load() < n {
		if spin.again() {
			continue
		}
		p.leaderParked.Swap(true)
		if p.done.Load() < n {
			<-p.leaderWake
		}
		p.leaderParked.Store(false)
	}
}

// help is the loop of one helper.
func (p *pool) help(h *helper, l *lane) {
	debug.SetPanicOnFault(true)
	if p.cpus != nil {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		_ = host.Bind(p.cpus)  // a CPU that disappeared only costs speed
	}
	spin := spinner{bound: p.cpus != nil}
	for !p.closed.Load() {
		claim := p.claim.Load()
		if _, n, next := unpack(claim); next < n {
			if p.claim.CompareAndSwap(claim, claim+1) {
				// Loaded after the claim: only then is the task sure to be the claimed
				// one.
				p.exec(p.task.Load(), l, next)
				p.done.Add(1)
				if p.leaderParked.Load() {
					select {
					case p.leaderWake <- struct{}{}:
					default:
					}
				}
				p.makeRoom()
			}
			spin.reset()
			continue
		}
		if spin.again() {
			continue
		}
		h.parked.Swap(true) // as in await
		if p.idle() || !h.parked.CompareAndSwap(true, false) {
			<-h.wake
		}
		spin.reset()
	}
}

// idle reports whether there is nothing to do but wait.
func (p *pool) idle() bool {
	_, n, next := unpack(p.claim.Load())
	return next == n && !p.closed.Load()
}

// wakeHelpers unparks up to n helpers.
func (p *pool) wakeHelpers(n int) {
	for _, h := range p.helpers {
		if n <= 0 {
			return
		}
		if h.parked.CompareAndSwap(true, false) {
			h.wake <- struct{}{}
		}
		n--
	}
}

// exec computes one item. A fault on mapped memory is stored for takeFault, and the
// item's result is undefined then. The goroutine must have set debug.SetPanicOnFault.
func (p *pool) exec(t *task, l *lane, item int) {
	defer func() {
		l.forget()
		if r := recover(); r != nil {
			err := faultError(r)
			p.fault.CompareAndSwap(nil, &err)
		}
	}()
	p.observer.label(t.op)
	t.run(l, item)
}

// faultError turns a recovered memory fault into an error. Other panics are
// bugs, and it raises them again.
func faultError(recovered any) error {
	fault, ok := recovered.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok {
		panic(recovered)
	}
	return fmt.Errorf("%w: at address %#x", ErrMemory, fault.Addr())
}

// takeFault returns the first fault since the last call, and clears it.
func (p *pool) takeFault() error {
	if p.fault.Load() == nil {
		return nil
	}
	return *p.fault.Swap(nil)
}

// spinner bounds busy waiting.
type spinner struct {
	bound bool // to a thread, see makeRoom
	turns int
	start time.Time
}

func (s *spinner) reset() { s.turns, s.start = 0, time.Time{} }

// again reports whether to keep spinning.
func (s *spinner) again() bool {
	s.turns++
	if s.turns%64 != 0 {
		return true
	}
	if !s.bound {
		runtime.Gosched()
	}
	now := time.Now()
	if s.start.IsZero() {
		s.start = now
	}
	return now.Sub(s.start) < spinTime
}
