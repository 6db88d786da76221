package device

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// maxQueued limits the jobs that wait for the device's thread; beyond it callers block.
const maxQueued = 256

// executor runs jobs on one thread, so that the device's context is current there
// already. One goroutine, ended by stop.
type executor struct {
	d    *Device
	jobs chan *job
	quit chan struct{} // closed when no job may follow
	once sync.Once
	done chan struct{} // closed when the goroutine has ended
}

// job is claimed either by the executor, which runs it, or by whoever waits no longer.
type job struct {
	f       func() error
	claimed atomic.Bool
	err     error
	done    chan struct{}
}

func startExecutor(d *Device) *executor {
	e := &executor{d: d, jobs: make(chan *job, maxQueued), quit: make(chan struct{}), done: make(chan struct{})}
	go e.loop()
	return e
}

func (e *executor) loop() {
	defer close(e.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		select {
		case j := <-e.jobs:
			e.do(j)
		case <-e.quit:
			return
		}
	}
}

func (e *executor) do(j *job) {
	if !j.claimed.CompareAndSwap(false, true) {
		return
	}
	defer close(j.done)
	if j.err = e.d.Err(); j.err == nil { // lost while it waited
		j.err = e.d.Check(j.f())
	}
}

func (e *executor) run(ctx context.Context, f func() error) error {
	j := &job{f: f, done: make(chan struct{})}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	select {
	case e.jobs <- j:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-e.quit:
		return ErrClosed
	}
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		return e.withdraw(j, context.Cause(ctx))
	case <-e.done:
		return e.withdraw(j, ErrClosed)
	}
}

// withdraw takes a job back; one that has begun is waited for, since it uses what belongs
// to its caller.
func (e *executor) withdraw(j *job, why error) error {
	if j.claimed.CompareAndSwap(false, true) {
		return why
	}
	<-j.done
	return j.err
}

// stop ends the goroutine after the job that it is at. Those that wait are not run.
func (e *executor) stop() {
	e.once.Do(func() { close(e.quit) })
	<-e.done
}
