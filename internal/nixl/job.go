package nixl

import (
	"sync"
	"time"
)

// Job is one post of a transfer, as the transport that carries it out sees it.
type Job struct {
	Op        Op
	Ticket    TicketID
	Local     [][]byte      // this agent's host memory, to be read for a Write and written for a Read
	Remote    []Desc        // the peer's memory; pairs up with Local
	Devices   []DevicePiece // this agent's device memory where Local has nil, for a DeviceTransport; nil without any
	Bytes     uint64
	Notify    []byte
	HasNotify bool

	transfer *Transfer // nil for a part of one
	done     func(error)
	unuse    func() // lets go of the local regions
	timer    *time.Timer

	mu       sync.Mutex
	ended    bool
	canceled bool
	cause    error
	hook     func(error)
}

// OnCancel sets the function that is called, at most once, when the job must end
// early; at once if it must already. The function must not block; it makes the
// transport stop touching Local and then call Finish with the cause.
func (j *Job) OnCancel(f func(cause error)) {
	j.mu.Lock()
	if !j.canceled {
		j.hook = f
		j.mu.Unlock()
		return
	}
	cause := j.cause
	j.mu.Unlock()
	f(cause)
}

func (j *Job) cancel(cause error) {
	j.mu.Lock()
	if j.ended || j.canceled {
		j.mu.Unlock()
		return
	}
	j.canceled, j.cause = true, cause
	f := j.hook
	j.hook = nil
	j.mu.Unlock()
	if f != nil {
		f(cause)
	}
}

// setTimer hands over the deadline timer; a job that has ended stops it.
func (j *Job) setTimer(t *time.Timer) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.timer = t
	if j.ended {
		t.Stop()
	}
}

// Finish ends the job: with nil when the data and the notification have arrived.
// Local must not be touched after the call. Only the first call counts.
func (j *Job) Finish(err error) {
	j.mu.Lock()
	if j.ended {
		j.mu.Unlock()
		return
	}
	j.ended, j.hook = true, nil
	timer, unuse := j.timer, j.unuse
	j.mu.Unlock()
	if timer != nil {
		timer.Stop()
	}
	if unuse != nil {
		unuse()
	}
	j.done(err)
}
