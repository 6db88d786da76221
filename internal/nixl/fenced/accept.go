//go:build linux

package fenced

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
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
	if t.closed || len(t.inbound)+len(t.greeting) >= t.opts.MaxInbound || len(t.greeting) >= handshakes {
		return false
	}
	t.greeting[uc] = struct{}{}
	t.wg.Go(func() {
		defer func() { _ = uc.Close() }()
		t.serve(uc)
	})
	return true
}

// serve runs one inbound connection from hello to end.
func (t *transport) serve(uc *net.UnixConn) {
	in, err := t.greet(uc)
	t.mu.Lock()
	delete(t.greeting, uc)
	closed := t.closed
	if err == nil && !closed {
		t.inbound[in] = struct{}{}
	}
	t.mu.Unlock()
	if err != nil {
		if !closed {
			t.host.Refused(nixl.RefusedHello)
			t.host.Log().Warn("nixl connection refused", "transport", t.Name(), "error", err)
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

// greet checks who is there and prepares what the welcome brings.
func (t *transport) greet(uc *net.UnixConn) (_ *inbound, err error) {
	var peer process
	if err := control(uc, func(fd int) (err error) { peer, err = peerProcess(fd); return err }); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			peer.close()
		}
	}()
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
