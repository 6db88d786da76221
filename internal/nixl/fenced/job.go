//go:build linux

package fenced

import (
	"fmt"
	"sync/atomic"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// runJob carries a job out and finishes it.
func (s *session) runJob(j *nixl.Job) {
	c := &copying{slots: s.t.pool.slots, stop: make(chan struct{}), lost: s.ended}
	j.OnCancel(c.end)
	err := s.enter(c.stop)
	if err == nil {
		err = s.transfer(j, c)
		s.jobs.Done()
	}
	if cause := c.err(); err != nil && cause != nil {
		err = cause
	}
	j.Finish(err)
}

// transfer asks for the memory, copies, tells the target, and returns when the
// target has confirmed the copy and accepted the notification. When it fails, no
// memory is touched any more either.
func (s *session) transfer(j *nixl.Job, c *copying) error {
	select {
	case s.slots <- struct{}{}:
	case <-s.ended:
		return s.err
	case <-c.stop:
		return errStopped
	}
	f := frame{header: header{kind: kindAccess}, body: wire.EncodeAccess(j.Ticket, j.Remote)}
	if j.Op == nixl.Write {
		f.flags = flagWrite
	}
	var noted atomic.Bool // the window has one for this notification
	cl, err := s.begin(f, j.Remote, func() {
		<-s.slots
		if noted.Load() {
			<-s.window
		}
	})
	if err != nil {
		return err
	}
	r, err := s.wait(cl, c.stop)
	if err == nil {
		err = r.err
	}
	if err != nil {
		return err
	}

	complete := s.copy(j, c, r)
	done := frame{header: header{kind: kindDone, id: cl.id}}
	if complete {
		done.flags = flagComplete
		if j.HasNotify {
			select {
			case s.window <- struct{}{}:
				noted.Store(true) // before the target can answer
				done.flags |= flagNotify
				done.body = j.Notify
			default: // full: the copy is confirmed first, so that no grant waits for a consumer
			}
		}
	}
	s.c.send(done)
	if r, err = s.wait(cl, c.stop); err != nil {
		return err
	}
	switch {
	case r.err != nil:
		return r.err
	case !complete:
		return fmt.Errorf("peer %q confirmed a copy that did not happen: %w: %w", s.remote.Name, errProtocol, nixl.ErrRemoteDisconnect)
	case j.HasNotify && !noted.Load():
		return s.notify(j.Notify, c.stop)
	}
	return nil
}

// copy moves the bytes of a granted job.
func (s *session) copy(j *nixl.Job, c *copying, r reply) (complete bool) {
	c.op, c.local, c.devices, c.remote = j.Op, j.Local, j.Devices, r.pieces
	c.fence, c.generation = s.fences.at(int(r.permit.slot)), r.permit.generation
	complete = c.run(int(min(uint64(cap(c.slots)), max(1, j.Bytes/splitBytes))))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maps.release(r.used)
	return complete
}
