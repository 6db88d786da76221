package cpu

import (
	"context"
	"time"
)

// runner runs tasks on a device, for a goroutine that has its turn there.
type runner struct {
	device *Device
	turn   *turn
	ctx    context.Context
	stop   func() bool
	// waited is the time that others used the device since the turn began.
	waited time.Duration
}

// bind prepares a runner, which must not be copied afterwards.
func (r *runner) bind(d *Device, t *turn) {
	r.device, r.turn, r.stop = d, t, r.interrupted
}

// do runs a task. If the turn may be interrupted, decode steps of other backends go
// first.
func (r *runner) do(t *task, n int) error {
	d := r.device
	for next := 0; next < n; {
		if r.ctx.Err() != nil {
			return context.Cause(r.ctx)
		}
		if d.turns.mustYield(r.turn) {
			if err := r.yield(true); err != nil {
				return err
			}
		}
		start := d.pool.observer.begin()
		next = d.pool.run(t, next, n, r.stop)
		d.pool.observer.end(t.op, start)
		if err := d.pool.takeFault(); err != nil {
			return err
		}
	}
	return nil
}

// yield lets others use the device; front keeps the place before other prefill steps.
func (r *runner) yield(front bool) error {
	begin := time.Now()
	r.device.turns.release(r.turn)
	if err := r.device.turns.acquire(r.ctx, r.turn, front); err != nil {
		return err
	}
	r.waited += time.Since(begin)
	return nil
}

// interrupted reports whether to pause the current task.
func (r *runner) interrupted() bool {
	return r.ctx.Err() != nil || r.device.turns.mustYield(r.turn)
}
