//go:build linux

package fenced

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// accept lets peers in until the listener is closed.
func (t *transport) accept() {
	for {
		uc, err := t.ln.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			t.host.Log().Warn("nixl accept failed", "transport", t.Name(), "error", err)
			select { // out of file descriptors: let some go
			case <-time.After(10 * time.Millisecond):
			case <-t.closing:
			}
			continue
		}
		if !t.admit(uc) {
			t.host.Refused(nixl.RefusedLimit)
			_ = uc.Close()
		}
	}
}

// admit starts serving a connection if there is room.
func (t *transport) admit(uc *net.UnixConn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.inbound)+len(t.greeting) >= t.opts.MaxInbound {
		return false
	}
	t.greeting[uc] = struct{}{}
	stranger := t.strangers.Enter(uc)
	t.wg.Go(func() {
		defer func() { _ = uc.Close() }()
		t.serve(uc, stranger)
	})
	return true
}

// serve runs one inbound connection from the handshake to its end.
func (t *transport) serve(uc *net.UnixConn, stranger *handshake.Guest) {
	in, err := t.greet(uc, stranger)
	t.mu.Lock()
	delete(t.greeting, uc)
	closed := t.closed
	if err == nil && !closed {
		t.inbound[in] = struct{}{}
	}
	t.mu.Unlock()
	if err != nil {
		if !closed {
			why := nixl.RefusedHello
			if errors.Is(err, errCrowded) {
				why = nixl.RefusedLimit
			}
			t.host.Refused(why)
			t.refusals.Warn(t.host.Log(), "nixl connection refused", "transport", t.Name(), "error", err)
		}
		return
	}
	if !closed {
		in.serve()
		t.mu.Lock()
		delete(t.inbound, in)
		t.mu.Unlock()
	}
	in.close()
}

// errCrowded ends a connection that was slow to prove itself while others came.
var errCrowded = errors.New("too many connections that prove nothing")

// greet checks who is there and prepares what the welcome brings. Nothing is read
// before the system has said that the peer runs as the same user, and nothing but the
// handshake before the peer has proved that it belongs to the cluster.
func (t *transport) greet(uc *net.UnixConn, stranger *handshake.Guest) (_ *inbound, err error) {
	var peer process
	err = control(uc, func(fd int) (err error) { peer, err = peerProcess(fd); return err })
	if err == nil {
		_, _, err = handshake.Accept(uc, handshake.Options{Protocol: spoken, Key: t.host.Key()}, time.Now().Add(t.opts.ConnectTimeout))
		err = wire.HandshakeError(cmp.Or(err, uc.SetDeadline(time.Time{})))
	}
	defer func() {
		if err != nil {
			peer.close()
		}
	}()
	if stranger.Leave() {
		err = errCrowded
	}
	if err != nil {
		return nil, err
	}
	c := newConn(uc, t.opts.ConnectTimeout, false)
	hd, body, err := c.read(func(kind) int { return helloBytes })
	if err != nil {
		return nil, fmt.Errorf("read hello: %w", err)
	}
	h, err := parseHello(body)
	if err == nil && hd.kind != kindHello {
		err = fmt.Errorf("frame of kind %d instead of a hello: %w", hd.kind, errProtocol)
	}
	if err == nil {
		err = h.check(t.host.Self(), t.token)
	}
	if err != nil {
		var buf []byte
		_ = c.write([]frame{resultFrame(0, err)}, &buf) // the reason, if the peer still listens
		return nil, err
	}
	c.silence = t.opts.SilenceTimeout
	return newInbound(t, c, h.ends.From, peer)
}

// control calls f with the descriptor of a socket.
func control(uc *net.UnixConn, f func(fd int) error) error {
	raw, err := uc.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}
