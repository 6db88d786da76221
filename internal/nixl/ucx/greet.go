package ucx

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// UCX connections are made by exchanging addresses over a TCP socket, where both sides
// prove that they belong to the cluster before an address is handed to UCX. The socket
// stays open, silent: its end tells at once that the peer's process is gone. Whoever ends a
// connection in an orderly way says so over the socket, too, as its end may be seen before
// the last messages of UCX.

const (
	maxHello  = 16 << 10 // of a greeting, in bytes
	greetings = 64       // sockets that have proved themselves and are being let in
)

// writeGreeting sends a frame over the socket: u32 length, kind, status, body.
func writeGreeting(nc net.Conn, f frame) error {
	b := binary.LittleEndian.AppendUint32(nil, uint32(2+len(f.body)))
	_, err := nc.Write(append(append(b, byte(f.kind), byte(f.status)), f.body...))
	return err
}

func readGreeting(r io.Reader) (frame, error) {
	var head [6]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n < 2 || n > maxHello {
		return frame{}, fmt.Errorf("greeting of %d bytes: %w", n, errProtocol)
	}
	f := frame{kind: kind(head[4]), status: nixl.Status(head[5]), body: make([]byte, n-2)}
	_, err := io.ReadFull(r, f.body)
	return f, err
}

// spoken is the protocol after the handshake.
var spoken = handshake.Protocol{Name: "dnxucx", Version: 3}

// dialPeer proves itself, says hello and returns the socket and what the peer answered.
func dialPeer(ctx context.Context, addr string, key handshake.Key, h hello) (_ net.Conn, w welcome, err error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, welcome{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer func() {
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			_ = nc.Close()
		}
	}()
	deadline, _ := ctx.Deadline()
	if _, _, err := handshake.Connect(nc, handshake.Options{Protocol: spoken, Key: key}, deadline); err != nil {
		return nil, welcome{}, wire.HandshakeError(err)
	}
	if err := writeGreeting(nc, frame{kind: kindHello, body: h.encode()}); err != nil {
		return nil, welcome{}, err
	}
	f, err := readGreeting(nc)
	if err != nil {
		return nil, welcome{}, err
	}
	switch f.kind {
	case kindWelcome:
		if w, err = parseWelcome(f.body); err == nil {
			err = nc.SetDeadline(time.Time{})
		}
		return nc, w, err
	case kindResult:
		return nil, welcome{}, fmt.Errorf("refused: %w", wire.ResultError(h.ends.To.Name, f.status, f.body))
	}
	return nil, welcome{}, fmt.Errorf("greeting of kind %d instead of a welcome: %w", f.kind, errProtocol)
}

// admit starts serving a socket.
func (t *transport) admit(nc net.Conn) {
	stranger := t.strangers.Enter(nc)
	t.wg.Go(func() { t.greet(nc, stranger) })
}

// greet serves one socket: a handshake, a hello, and then nothing but its end.
func (t *transport) greet(nc net.Conn, stranger *handshake.Guest) {
	stop := context.AfterFunc(t.ctx, func() { _ = nc.Close() })
	defer stop()
	defer func() { _ = nc.Close() }()
	_, _, err := stranger.Accept(handshake.Options{Protocol: spoken, Key: t.host.Key()}, time.Now().Add(t.opts.ConnectTimeout))
	var in *inbound
	if err = wire.HandshakeError(err); err == nil {
		in, err = t.letGreet(nc)
	}
	if err != nil {
		if t.ctx.Err() == nil {
			wire.Refuse(t.host, &t.refusals, Name, err)
		}
		return
	}
	if !t.engine.do(func() { in.socket = nc; in.closeSocketIfEnded() }) {
		return
	}
	t.engine.hangUp(nc, in)
}

// letGreet is welcome for a few at a time.
func (t *transport) letGreet(nc net.Conn) (*inbound, error) {
	select {
	case t.greeting <- struct{}{}:
		defer func() { <-t.greeting }()
		return t.welcome(nc)
	default:
		return nil, wire.ErrFull
	}
}

func (t *transport) welcome(nc net.Conn) (*inbound, error) {
	f, err := readGreeting(nc)
	if err != nil {
		return nil, fmt.Errorf("read hello: %w", err)
	}
	h, err := parseHello(f.body)
	switch {
	case f.kind != kindHello:
		return nil, fmt.Errorf("greeting of kind %d instead of a hello: %w", f.kind, errProtocol)
	case err != nil:
		return nil, err
	case !h.known(t.token):
		return nil, fmt.Errorf("wrong secret: %w", nixl.ErrNotAllowed)
	}
	var in *inbound
	w := welcome{silence: t.opts.SilenceTimeout, open: maxOpen, window: windowCount, direct: t.direct}
	err = h.ends.Check(t.host.Self())
	if err == nil && !t.engine.call(func() {
		if in, err = t.letIn(h); err == nil {
			w.address = in.port.w.Address()
		}
	}) {
		return nil, errClosed
	}
	if err != nil {
		_ = writeGreeting(nc, resultFrame(0, err)) // if the peer still listens
		return nil, err
	}
	if err = writeGreeting(nc, frame{kind: kindWelcome, body: w.encode()}); err == nil {
		err = nc.SetDeadline(time.Time{})
	}
	if err != nil {
		t.engine.do(func() { in.end(fmt.Errorf("welcome: %w: %w", err, nixl.ErrRemoteDisconnect)) })
		return nil, err
	}
	return in, nil
}

// hangUp waits for the end of a peer's socket, and tells the owner of the connection.
func (e *engine) hangUp(nc net.Conn, owner portOwner) {
	f, err := readGreeting(nc)
	if err == nil && f.kind == kindBye {
		e.do(func() { owner.parted(f.body) })
		return
	}
	if err == nil {
		err = errProtocol
	}
	e.do(func() { owner.broken(fmt.Errorf("peer has hung up: %w: %w", err, nixl.ErrRemoteDisconnect)) })
}

// leave says a last word over the socket, if there is one.
func leave(nc net.Conn, word string) {
	if nc == nil || word == "" {
		return
	}
	_ = nc.SetWriteDeadline(time.Now().Add(settleTime)) // there is room for it
	_ = writeGreeting(nc, frame{kind: kindBye, body: []byte(word)})
}
