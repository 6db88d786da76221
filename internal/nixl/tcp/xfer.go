package tcp

import (
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/nixl"
)

// xfer is a job of the agent, cut into parts.
type xfer struct {
	s   *session
	job *nixl.Job

	mu        sync.Mutex
	started   bool
	parts     []*part
	err       error // the first failure
	dead      bool  // the session has ended: no more answers
	notifying *note
	finished  bool
}

// part is the share of a transfer that one connection carries.
type part struct {
	x     *xfer
	c     *initiator
	id    uint64 // guarded by initiator.pm
	total uint64
	descs []nixl.Desc
	send  *sendStream // of a write
	recv  *recvStream // of a read

	// guarded by xfer.mu
	quiet    bool // local memory is not touched any more
	answered bool // by the target, or it does not know of the part
}

func (p *part) gate() *gate {
	if p.send != nil {
		return &p.send.gate
	}
	return &p.recv.gate
}

// start cuts the transfer and hands the parts to the connections.
func (x *xfer) start(conns []*initiator) {
	x.mu.Lock()
	if x.started || x.finished {
		x.mu.Unlock()
		return
	}
	x.started = true
	if x.err == nil {
		x.err = x.fits(conns[0].limits)
	}
	if x.err == nil {
		x.parts = x.cut(conns)
	}
	parts := x.parts
	x.mu.Unlock()
	for _, p := range parts {
		p.c.begin(p)
	}
	x.check()
}

// fits reports what the peer would not take.
func (x *xfer) fits(w welcome) error {
	switch j := x.job; {
	case len(j.Remote) > int(w.descs):
		return fmt.Errorf("%d descriptors, peer takes %d: %w", len(j.Remote), w.descs, nixl.ErrInvalidParam)
	case len(j.Notify) > int(w.notifySize):
		return fmt.Errorf("notification of %d bytes, peer takes %d: %w", len(j.Notify), w.notifySize, nixl.ErrInvalidParam)
	}
	return nil
}

// cut divides the bytes evenly among the connections; short transfers stay whole,
// on the connection with the least to do.
func (x *xfer) cut(conns []*initiator) []*part {
	j := x.job
	n := uint64(len(conns))
	n = max(1, min(n, j.Bytes/splitBytes))
	first := x.s.least(conns)
	var parts []*part
	for i, off := uint64(0), uint64(0); i < n; i++ {
		end := j.Bytes
		if i+1 < n {
			end = min(j.Bytes, (j.Bytes/n*(i+1)+4095)&^4095)
		}
		p := &part{x: x, c: conns[(first+int(i))%len(conns)], total: end - off, descs: nixl.SliceDescs(j.Remote, off, end-off)}
		mem := pieces{segs: nixl.SliceSegments(j.Local, off, end-off)}
		quiet := func() { x.quieted(p) }
		if j.Op == nixl.Write {
			p.send = &sendStream{mem: mem, total: p.total, gate: gate{interrupt: p.c.interruptWrite, quiet: quiet}}
		} else {
			p.recv = &recvStream{mem: mem, total: p.total, gate: gate{interrupt: p.c.interruptRead, quiet: quiet}}
		}
		parts = append(parts, p)
		off = end
	}
	return parts
}

// least picks the connection with the fewest bytes to do.
func (s *session) least(conns []*initiator) int {
	s.mu.Lock()
	s.turn++
	best := s.turn % len(conns)
	s.mu.Unlock()
	for i := range conns {
		if conns[i].load.Load() < conns[best].load.Load() {
			best = i
		}
	}
	return best
}

// abandon ends the transfer after the connections are gone.
func (x *xfer) abandon(cause error) {
	x.mu.Lock()
	x.dead = true
	x.mu.Unlock()
	x.fail(cause)
}

// fail makes the transfer end with err: it shuts all gates, which interrupts what
// touches local memory, and lets the target know. A write ends only when the target
// has confirmed, so that no late bytes meet those of another transfer.
func (x *xfer) fail(err error) {
	x.mu.Lock()
	if x.finished {
		x.mu.Unlock()
		return
	}
	if x.err == nil {
		x.err = err
	}
	parts, n := x.parts, x.notifying
	x.mu.Unlock()
	if n != nil {
		x.s.unqueue(n)
	}
	for _, p := range parts {
		if p.gate().shut() {
			p.c.drop(p)
		}
	}
	x.check()
}

func (x *xfer) quieted(p *part) {
	x.mu.Lock()
	p.quiet = true
	x.mu.Unlock()
	x.check()
}

// unopened records that a part will not reach the target.
func (x *xfer) unopened(p *part) {
	x.mu.Lock()
	p.answered = true
	x.mu.Unlock()
	x.check()
}

// answered records the target's answer to a part.
func (x *xfer) answered(p *part, err error) {
	x.mu.Lock()
	p.answered = true
	x.mu.Unlock()
	if err != nil {
		x.fail(err)
		return
	}
	x.check()
}

// check finishes the transfer, or sends its notification, when all parts are over.
func (x *xfer) check() {
	x.mu.Lock()
	if x.finished || (!x.started && x.err == nil) {
		x.mu.Unlock()
		return
	}
	for _, p := range x.parts {
		silent := x.dead || (x.err != nil && p.recv != nil) // no answer is needed
		if !p.quiet || (!p.answered && !silent) {
			x.mu.Unlock()
			return
		}
	}
	if x.err == nil && x.job.HasNotify {
		if x.notifying == nil {
			n := &note{msg: x.job.Notify, done: x.notified}
			x.notifying = n
			x.mu.Unlock()
			x.s.queueNote(n)
			return
		}
		x.mu.Unlock()
		return
	}
	x.finished = true
	err := x.err
	x.mu.Unlock()
	x.s.forget(x)
	x.job.Finish(err)
}

// notified is called when the target has accepted the notification.
func (x *xfer) notified(err error) {
	x.mu.Lock()
	if x.finished {
		x.mu.Unlock()
		return
	}
	if x.err == nil {
		x.err = err
	}
	x.finished = true
	err = x.err
	x.mu.Unlock()
	x.s.forget(x)
	x.job.Finish(err)
}
