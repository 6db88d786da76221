package ucx

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// xfer is a job of a session. How the bytes move is its mover's business.
type xfer struct {
	s     *session
	job   *nixl.Job
	state xferState
	id    uint64
	cause error // this agent gives it up
	shut  bool  // the target wants it to end
	over  bool  // the job has ended; what follows is bookkeeping
	noted bool  // the notification travels with the done frame
	note  *note // or by itself

	where  []nixl.Desc // memory of the peer, for a device
	mover  mover       // while bytes move
	moved  uint64
	pieces int  // on their way
	posted bool // all of them
}

type xferState uint8

const (
	queued xferState = iota
	asking           // for access
	moving           // bytes
	told             // the target that nothing is on its way any more
)

// mover moves the bytes of a granted access.
type mover interface {
	// post sends a piece on its way; false if there is no more.
	post() (bool, error)
	// landed reports how many bytes of the pieces on their way have arrived, and how many
	// pieces are still on their way.
	landed() (bytes uint64, pieces int, err error)
	// data takes bytes that the target sends.
	data(offset uint64, b []byte)
	// abandon forgets what is on its way, before the connection is closed.
	abandon()
}

// submit takes a job.
func (s *session) submit(j *nixl.Job) {
	x := &xfer{s: s, job: j}
	if s.cause != nil {
		x.finish(s.cause)
		return
	}
	s.waiting = append(s.waiting, x)
	s.dial()
	s.pump()
	// The function runs at once if the job was canceled before.
	j.OnCancel(func(cause error) { s.e.do(func() { x.cancel(cause) }) })
}

// pump asks for access for those that wait, while the target allows more.
func (s *session) pump() {
	for s.state == up && len(s.waiting) > 0 && len(s.xfers) < int(s.w.open) {
		x := s.waiting[0]
		s.waiting = s.waiting[1:]
		x.state = asking
		f := frame{kind: kindAccess, body: wire.EncodeAccess(x.job.Ticket, x.job.Remote)}
		if x.job.Op == nixl.Write {
			f.flags |= flagWrite
		}
		if s.direct() {
			f.flags |= flagDirect
		}
		s.xfers = append(s.xfers, x)
		x.id = s.call(f, x.result)
	}
}

// finish ends the job: its memory is not touched any more.
func (x *xfer) finish(err error) {
	if x.over {
		return
	}
	x.over = true
	if x.cause != nil && err != nil {
		err = x.cause
	}
	x.job.Finish(err)
}

// cancel gives the job up. Pieces on their way are waited for.
func (x *xfer) cancel(cause error) {
	if x.over || x.cause != nil || x.s.state == ended {
		return
	}
	x.cause = cause
	switch x.state {
	case queued:
		x.s.waiting = slices.DeleteFunc(x.s.waiting, func(o *xfer) bool { return o == x })
		x.finish(cause)
	case asking, told: // the answer is awaited, but not by the job
		if x.note != nil {
			x.s.unqueue(x.note)
		}
		x.finish(cause)
	case moving:
		x.s.port.hot = true // step stops it
	}
}

// start begins to move what was granted.
func (x *xfer) start() (err error) {
	x.state = moving
	switch {
	case x.cause != nil:
		x.mover = nothing{}
	case x.s.direct():
		x.mover, err = newDirect(x)
	default:
		x.mover = &messages{x: x}
	}
	return err
}

// step looks after the pieces on their way and posts more.
func (x *xfer) step() (busy bool) {
	if x.state != moving {
		return false
	}
	before := x.moved
	bytes, pieces, err := x.mover.landed()
	if err != nil {
		x.s.broken(err)
		return true
	}
	x.moved += bytes
	others := x.s.inFlight() - x.pieces
	for !x.stopped() && pieces < flying && others+pieces < flyingAll {
		more, err := x.mover.post()
		if err != nil {
			x.s.broken(err)
			return true
		}
		if !more {
			x.posted = true
			break
		}
		x.s.port.hot = true
		pieces++
		busy = true
	}
	x.pieces = pieces
	if pieces == 0 && x.stopped() {
		x.tell()
		return true
	}
	return busy || x.moved > before
}

// stopped reports whether no more pieces are posted.
func (x *xfer) stopped() bool { return x.cause != nil || x.shut || x.posted }

// tell confirms that nothing is on its way any more.
func (x *xfer) tell() {
	x.state = told
	f := frame{kind: kindDone, id: x.id, body: binary.LittleEndian.AppendUint64(nil, x.moved)}
	if x.moved == x.job.Bytes {
		f.flags = flagComplete
		if x.job.HasNotify && x.cause == nil && len(x.s.notes) == 0 && x.s.takeWindow() {
			// Else the access is confirmed first: no grant waits for a consumer.
			x.noted = true
			f.flags |= flagNotify
			f.body = append(f.body, x.job.Notify...)
		}
	}
	x.s.port.send(f)
	if x.cause != nil {
		x.finish(x.cause)
	}
}

// result handles the target's last answer, or that there will be none.
func (x *xfer) result(_ frame, err error) {
	s := x.s
	if s.state == ended {
		x.finish(err)
		return
	}
	if x.state == moving || x.state == asking && err == nil { // a correct target waits for done
		s.port.fail(fmt.Errorf("access %d was answered while it runs: %w", x.id, errProtocol))
		return
	}
	s.xfers = slices.DeleteFunc(s.xfers, func(o *xfer) bool { return o == x })
	if x.noted {
		s.freeWindow()
	}
	defer s.pump()
	switch {
	case err != nil:
		x.finish(err)
	case x.moved != x.job.Bytes:
		x.finish(fmt.Errorf("peer %q confirmed a transfer that did not happen: %w: %w", s.remote.Name, errProtocol, nixl.ErrRemoteDisconnect))
	case x.job.HasNotify && !x.noted && !x.over:
		x.note = &note{msg: x.job.Notify, done: x.finish}
		s.notify(x.note)
	default:
		x.finish(nil)
	}
}

// nothing is the mover of a job that was canceled before it was granted.
type nothing struct{}

func (nothing) post() (bool, error)          { return false, nil }
func (nothing) landed() (uint64, int, error) { return 0, 0, nil }
func (nothing) data(uint64, []byte)          {}
func (nothing) abandon()                     {}
