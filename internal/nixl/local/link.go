package local

import (
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/nixl"
)

// notifyWindow limits the notifications of one link that wait to be accepted.
const notifyWindow = 64

// link is an initiator's way to one generation of a peer.
type link struct {
	source *transport
	target *transport // nil when the peer was gone already
	remote nixl.Remote
	window chan struct{} // one per notification that waits to be accepted
	ended  chan struct{} // closed with the link; cause is set before

	mu     sync.Mutex
	opened bool // the peer was told
	closed bool
	cause  error
}

func newLink(source *transport, r nixl.Remote, target *transport) *link {
	return &link{source: source, target: target, remote: r, window: make(chan struct{}, notifyWindow), ended: make(chan struct{})}
}

// open tells the peer of the first use. The Host is called under link.mu to keep
// up and down in order; no Host calls back into a link.
func (l *link) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return l.cause
	case l.target == nil:
		gone := fmt.Errorf("peer %q is gone: %w", l.remote.Name, nixl.ErrRemoteDisconnect)
		l.source.wg.Add(1) // the caller holds one already
		go func() {
			defer l.source.wg.Done()
			l.source.host.PeerDown(l.remote, gone)
		}()
		return gone
	case !l.opened:
		l.opened = true
		l.target.host.InboundUp(Name, l.source.host.Self())
	}
	return nil
}

// close ends the link and its jobs with cause; the peer is told peerCause. It
// reports whether this call did it.
func (l *link) close(cause, peerCause error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.closed, l.cause = true, cause
	close(l.ended)
	if l.target != nil {
		l.target.leave(l)
		if l.opened {
			l.target.host.InboundDown(Name, l.source.host.Self(), peerCause)
		}
	}
	return true
}

// deliver hands a notification to the peer's agent and waits until it is
// accepted, the link ends, or stop is closed.
func (l *link) deliver(stop <-chan struct{}, msg []byte) error {
	canceled := fmt.Errorf("notification to %q was not accepted: %w", l.remote.Name, nixl.ErrCanceled)
	select {
	case l.window <- struct{}{}:
	case <-l.ended:
		return l.cause
	case <-stop:
		return canceled
	}
	accepted := make(chan error, 1)
	l.target.host.Deliver(l.source.host.Self().Name, msg, func(err error) {
		<-l.window
		accepted <- err
	})
	select {
	case err := <-accepted:
		return err
	case <-l.ended:
		return l.cause
	case <-stop:
		return canceled
	}
}
