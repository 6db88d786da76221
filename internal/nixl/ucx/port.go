package ucx

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/ucx/ucp"
)

// port is one end of a connection: a worker of its own with an endpoint to the worker
// at the other end. Whatever the peer does to this agent's memory comes in through that
// worker, so that nothing does after it was closed. All methods run on the engine's
// goroutine.
type port struct {
	e     *engine
	w     *ucp.Worker
	owner portOwner
	hot   bool // to be progressed

	ep    *ucp.Endpoint // nil until connected
	sent  uint32
	order order
	sends []sending

	arrived []message   // in Progress
	failure error       // handed to the owner by the next poll
	since   time.Time   // of a failure of UCX, which waits for settleTime: the end of a peer in order is seen first; else zero
	parted  bool        // the peer has said its last word over the socket
	wiring  ucp.Request // a flush, done when UCX has finished connecting
}

// portOwner owns a port and handles its messages.
type portOwner interface {
	// frame handles a message. An error ends the connection.
	frame(f frame) error
	// data takes the bytes of a data frame, which are gone afterwards, while UCX is still
	// at work: the connection must not be used. The frame itself follows, without them,
	// when its turn has come.
	data(f frame)
	// broken says that the connection is of no use any more.
	broken(cause error)
	// parted says that the peer has ended the connection with a last word, which is also
	// in a message on its way.
	parted(word []byte)
	// step goes on with what is under way; false if it cannot.
	step() (busy bool)
	tick(now time.Time)
}

// message is a frame that has arrived.
type message struct {
	frame frame
	seq   uint32
}

// sending is a message that UCX has not sent yet. It is pinned, as UCX reads it later.
type sending struct {
	r    ucp.Request
	pin  *runtime.Pinner
	sent func() // may be nil
}

func (e *engine) newPort(owner portOwner) (*port, error) {
	p := &port{e: e, owner: owner, hot: true}
	var err error
	if p.w, err = e.ctx.NewWorker(p.take); err != nil {
		return nil, fmt.Errorf("%w: %w", err, nixl.ErrBackend)
	}
	e.ports[p] = struct{}{}
	return p, nil
}

// take handles a message inside of Progress.
func (p *port) take(header, body []byte) {
	f, seq, err := parseFrame(header, body)
	switch {
	case err != nil:
		p.fail(err)
		return
	case f.kind == kindData:
		p.owner.data(f)
		f.body = nil
	default:
		f.body = append([]byte(nil), body...)
	}
	p.arrived = append(p.arrived, message{f, seq})
}

// connect makes the endpoint that send uses.
func (p *port) connect(address []byte) error {
	ep, err := p.w.Connect(address)
	if err != nil {
		return fmt.Errorf("%w: %w", err, nixl.ErrRemoteDisconnect)
	}
	p.ep, p.hot = ep, true
	if p.wiring, err = ep.Flush(); err != nil {
		return fmt.Errorf("%w: %w", err, nixl.ErrRemoteDisconnect)
	}
	return nil
}

// send sends a frame. The number of frames under way is bounded by the windows of the
// protocol.
func (p *port) send(f frame) { p.sendThen(f, nil) }

// sendThen calls sent when the body of the frame is not needed any more; it may be on
// the Go heap, or registered memory. sent is not called when the port is closed before.
func (p *port) sendThen(f frame, sent func()) {
	if p.w == nil || p.ep == nil || p.failure != nil {
		return
	}
	p.hot = true
	header := make([]byte, headerBytes)
	f.header(header, p.sent)
	p.sent++
	pin := new(runtime.Pinner)
	pin.Pin(&header[0])
	if len(f.body) > 0 {
		pin.Pin(&f.body[0]) // nothing happens to memory that is not on the heap
	}
	r, err := p.ep.Send(header, f.body)
	if err != nil {
		pin.Unpin()
		p.lose(err)
		return
	}
	p.sends = append(p.sends, sending{r, pin, sent})
}

// fail makes the next poll end the connection.
func (p *port) fail(err error) {
	if p.failure == nil {
		p.failure = err
	}
	p.hot = true
}

// lose is fail for errors of UCX. A peer that ends the connection in order breaks it for
// UCX, too: its last word, or the end of its socket, has a moment to come.
func (p *port) lose(err error) {
	if p.failure == nil {
		p.since = p.e.now
	}
	p.fail(err)
}

// failed reports whether the connection is to be ended now.
func (p *port) failed() bool {
	return p.failure != nil && (p.since.IsZero() || p.parted || p.e.now.Sub(p.since) > settleTime)
}

// poll does what is to be done; false if there was nothing.
func (p *port) poll() (busy bool) {
	const rounds = 64 // others want to be served, too
	for range rounds {
		if p.w.Progress() == 0 {
			break
		}
		busy = true
	}
	p.reap()
	if !p.w.Sound() {
		p.fail(fmt.Errorf("message by rendezvous: %w", errProtocol))
	}
	arrived := p.arrived
	p.arrived = nil
	for _, m := range arrived {
		busy = true
		if err := p.receive(m); err != nil {
			p.since = time.Time{}
			p.failure = err // it is newer than a failure of UCX
			break
		}
		if p.w == nil {
			return true
		}
	}
	if p.failure == nil && p.ep != nil {
		if err := p.ep.Failed(); err != nil {
			p.lose(fmt.Errorf("connection broke: %w", err))
		}
	}
	if p.failed() {
		err := p.failure
		if !errors.Is(err, nixl.ErrRemoteDisconnect) {
			err = fmt.Errorf("%w: %w", err, nixl.ErrRemoteDisconnect)
		}
		p.owner.broken(err)
		return true
	}
	return p.owner.step() || busy
}

func (p *port) receive(m message) error {
	due, err := p.order.take(m.frame, m.seq)
	if err != nil {
		return err
	}
	for _, f := range due {
		if err := p.owner.frame(f); err != nil {
			return err
		}
		if p.w == nil {
			break // the frame has ended the connection
		}
	}
	return nil
}

// reap forgets requests that have ended.
func (p *port) reap() {
	var sent []func()
	left := p.sends[:0]
	for _, s := range p.sends {
		done, err := p.e.finished(s.r)
		if !done {
			left = append(left, s)
			continue
		}
		s.pin.Unpin()
		if err != nil {
			p.lose(err)
		}
		if s.sent != nil {
			sent = append(sent, s.sent)
		}
	}
	clear(p.sends[len(left):])
	p.sends = left
	p.settle()
	for _, f := range sent {
		f()
	}
}

// settle reports whether UCX has finished connecting.
func (p *port) settle() bool {
	if p.wiring == 0 {
		return true
	}
	done, err := p.e.finished(p.wiring)
	if !done {
		return false
	}
	p.wiring = 0
	if err != nil {
		p.lose(err)
	}
	return true
}

// flushed reports whether everything was sent.
func (p *port) flushed() bool { return len(p.sends) == 0 && p.wiring == 0 }

// close destroys the worker. Nothing arrives at memory of this agent through it any
// more, and nothing of this agent is read; requests are void. Without force, what is sent
// already is on its way before.
func (p *port) close(force bool) {
	if p.w == nil {
		return
	}
	p.owner = deaf{} // what still arrives is not for it
	if p.ep != nil {
		// UCX 1.13 aborts the process when a worker is destroyed while it connects.
		for end := time.Now().Add(settleTime); !p.settle() && p.ep.Failed() == nil && time.Now().Before(end); {
			if p.w.Progress() == 0 {
				runtime.Gosched()
			}
		}
		r, err := p.ep.Close(force || p.ep.Failed() != nil || !p.flushed())
		const rounds = 1000
		for range rounds {
			if done, _ := p.e.finished(r); done || err != nil {
				r = 0
				break
			}
			p.w.Progress()
		}
		p.e.lib.Free(r)
	}
	p.e.lib.Free(p.wiring)
	for _, s := range p.sends {
		p.e.lib.Free(s.r)
	}
	delete(p.e.ports, p)
	p.w.Close()
	for _, s := range p.sends {
		s.pin.Unpin()
	}
	p.w, p.ep, p.sends = nil, nil, nil
}

// deaf owns a port that is being closed.
type deaf struct{}

func (deaf) frame(frame) error { return nil }
func (deaf) data(frame)        {}
func (deaf) broken(error)      {}
func (deaf) parted([]byte)     {}
func (deaf) step() bool        { return false }
func (deaf) tick(time.Time)    {}
