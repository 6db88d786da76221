//go:build linux

package fenced

import (
	"cmp"
	"fmt"
	"net"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// admit starts serving a connection.
func (t *transport) admit(nc net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	uc, ok := nc.(*net.UnixConn)
	if !ok || t.closed { // always a unix socket
		_ = nc.Close()
		return
	}
	t.greeting[uc] = struct{}{}
	stranger := t.strangers.Enter(uc) // in the order of arrival: the oldest go first
	t.wg.Go(func() {
		defer func() { _ = uc.Close() }()
		t.serve(uc, stranger)
	})
}

// serve runs one inbound connection from the handshake to its end.
func (t *transport) serve(uc *net.UnixConn, stranger *handshake.Guest) {
	in, err := t.greet(uc, stranger)
	t.mu.Lock()
	delete(t.greeting, uc)
	closed := t.closed
	switch {
	case err != nil || closed:
	case len(t.inbound) >= t.opts.MaxInbound:
		err = wire.ErrFull
	default:
		t.inbound[in] = struct{}{}
	}
	t.mu.Unlock()
	if err != nil {
		if in != nil {
			in.close()
		}
		if !closed {
			wire.Refuse(t.host, &t.refusals, t.Name(), err)
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

// greet checks the peer's process and prepares the welcome. Nothing is read
// before the system has said that the peer runs as the same user, and nothing but the
// handshake before the peer has proved that it belongs to the cluster.
func (t *transport) greet(uc *net.UnixConn, stranger *handshake.Guest) (_ *inbound, err error) {
	var peer process
	if err := control(uc, func(fd int) (err error) { peer, err = peerProcess(fd); return err }); err != nil {
		stranger.Leave()
		return nil, err
	}
	defer func() {
		if err != nil {
			peer.close()
		}
	}()
	_, _, err = stranger.Accept(handshake.Options{Protocol: spoken, Key: t.host.Key()}, time.Now().Add(t.opts.ConnectTimeout))
	if err = wire.HandshakeError(cmp.Or(err, uc.SetDeadline(time.Time{}))); err != nil {
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
		err = wire.Admit(h.token, t.token, h.ends, t.host.Self())
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
