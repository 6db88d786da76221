// Package zmtp speaks as much of ZMTP 3.0 over TCP as it takes to receive from the PUB and
// ROUTER sockets of ZeroMQ: https://rfc.zeromq.org/spec/23. The mechanism is NULL.
//
// A [Conn] is one connection, after [Open] has greeted the peer. It belongs to one goroutine.
// Dialing and reconnecting is up to the caller, who may close the connection at any time to
// end what goes on.
//
// It is written here because github.com/go-zeromq/zmq4 allocates what a peer claims to send,
// puts no limit on messages and greetings, and leaves goroutines behind after Close.
package zmtp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// The types of sockets.
const (
	Pub    = "PUB"
	Sub    = "SUB"
	Dealer = "DEALER"
	Router = "ROUTER"
)

// peers has the types that each type talks to. A PUB may be an XPUB.
var peers = map[string][]string{
	Sub: {Pub, "XPUB"}, Pub: {Sub, "XSUB"}, Dealer: {Router, Dealer, "REP"}, Router: {Dealer, Router, "REQ"},
}

// Limits bound what a peer can cause. All must be set.
type Limits struct {
	Message int           // bytes of all frames of a message
	Frames  int           // of a message
	Begun   time.Duration // to complete a message that has begun, and to send one
}

// Errors of connections, wrapped with what was seen.
var (
	// ErrProtocol is returned for what is not ZMTP 3 with the NULL mechanism, or not a peer
	// for the type of socket.
	ErrProtocol = errors.New("not a ZeroMQ peer")
	// ErrTooLarge is returned for a message beyond the limits.
	ErrTooLarge = errors.New("message is too large")
)

// Conn is a connection to a peer.
type Conn struct {
	c      net.Conn
	kind   string
	limits Limits
	out    bytes.Buffer // of Send
}

const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// greeting is that of ZMTP 3.0, so that peers take subscriptions as messages.
func greeting() []byte {
	g := make([]byte, 64)
	g[0], g[9], g[10] = 0xff, 0x7f, 3
	copy(g[12:32], "NULL")
	return g
}

// Open greets the peer of a new connection as a socket of a kind, until a deadline. The
// caller closes c, also after an error.
func Open(c net.Conn, kind string, limits Limits, deadline time.Time) (*Conn, error) {
	z := &Conn{c: c, kind: kind, limits: limits}
	if err := c.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if _, err := c.Write(greeting()); err != nil {
		return nil, err
	}
	got := make([]byte, 64)
	// A peer of another kind may send less, and wait.
	if _, err := io.ReadFull(c, got[:11]); err != nil {
		return nil, err
	}
	if got[0] != 0xff || got[9]&1 != 1 || got[10] < 3 {
		return nil, fmt.Errorf("%w: it greets with % x", ErrProtocol, got[:11])
	}
	if _, err := io.ReadFull(c, got[11:]); err != nil {
		return nil, err
	}
	if mechanism := string(bytes.TrimRight(got[12:32], "\x00")); mechanism != "NULL" {
		return nil, fmt.Errorf("%w: it wants the security mechanism %q", ErrProtocol, mechanism)
	}
	if err := z.write(flagCommand, ready(kind)); err != nil {
		return nil, err
	}
	body, flags, err := z.frame(1 << 10)
	if err != nil {
		return nil, err
	}
	if err := z.welcome(flags, body); err != nil {
		return nil, err
	}
	return z, c.SetDeadline(time.Time{})
}

func ready(kind string) []byte {
	b := append([]byte("\x05READY\x0bSocket-Type"), 0, 0, 0, byte(len(kind)))
	b = append(b, kind...)
	if kind == Dealer {
		b = append(b, "\x08Identity\x00\x00\x00\x00"...)
	}
	return b
}

// welcome checks the first command of the peer.
func (z *Conn) welcome(flags byte, body []byte) error {
	name, rest, ok := command(body)
	switch {
	case flags&flagCommand == 0 || !ok:
		return fmt.Errorf("%w: no command follows its greeting", ErrProtocol)
	case name == "ERROR":
		return fmt.Errorf("%w: it says %q", ErrProtocol, rest[min(1, len(rest)):])
	case name != "READY":
		return fmt.Errorf("%w: it greets with the command %q", ErrProtocol, name)
	}
	for len(rest) > 0 {
		key, after, ok := command(rest)
		if !ok || len(after) < 4 {
			return fmt.Errorf("%w: its properties are cut", ErrProtocol)
		}
		n := binary.BigEndian.Uint32(after)
		if after = after[4:]; uint64(n) > uint64(len(after)) {
			return fmt.Errorf("%w: its properties are cut", ErrProtocol)
		}
		value := after[:n]
		rest = after[n:]
		if bytes.EqualFold([]byte(key), []byte("Socket-Type")) {
			for _, kind := range peers[z.kind] {
				if string(value) == kind {
					return nil
				}
			}
			return fmt.Errorf("%w: its socket is a %q, which does not talk to a %s", ErrProtocol, value, z.kind)
		}
	}
	return fmt.Errorf("%w: it does not say the type of its socket", ErrProtocol)
}

// command splits a command, or a property, into its name and the rest.
func command(b []byte) (name string, rest []byte, ok bool) {
	if len(b) == 0 || int(b[0]) > len(b)-1 {
		return "", nil, false
	}
	n := int(b[0])
	return string(b[1 : 1+n]), b[1+n:], true
}

// Subscribe asks a PUB for messages whose first frame begins with a topic.
func (z *Conn) Subscribe(topic string) error { return z.Send([]byte("\x01" + topic)) }

// Send sends a message.
func (z *Conn) Send(frames ...[]byte) error {
	if err := z.c.SetWriteDeadline(time.Now().Add(z.limits.Begun)); err != nil {
		return err
	}
	z.out.Reset()
	for i, f := range frames {
		flags := byte(0)
		if i < len(frames)-1 {
			flags = flagMore
		}
		z.append(flags, f)
	}
	_, err := z.c.Write(z.out.Bytes())
	return err
}

func (z *Conn) write(flags byte, body []byte) error {
	z.out.Reset()
	z.append(flags, body)
	_, err := z.c.Write(z.out.Bytes())
	return err
}

func (z *Conn) append(flags byte, body []byte) {
	if len(body) > 255 {
		z.out.WriteByte(flags | flagLong)
		z.out.Write(binary.BigEndian.AppendUint64(nil, uint64(len(body))))
	} else {
		z.out.WriteByte(flags)
		z.out.WriteByte(byte(len(body)))
	}
	z.out.Write(body)
}

// Receive returns the frames of the next message. It waits for a message to begin until the
// deadline, if there is one, or the connection is closed. After an error the connection is of
// no more use, but for a deadline that passed before a message began.
func (z *Conn) Receive(begins time.Time) ([][]byte, error) {
	var frames [][]byte
	left := z.limits.Message
	if err := z.c.SetReadDeadline(begins); err != nil {
		return nil, err
	}
	for {
		body, flags, err := z.frame(left)
		if err != nil {
			return nil, err
		}
		if flags&flagCommand != 0 {
			if err := z.beat(body); err != nil {
				return nil, err
			}
			if err := z.c.SetReadDeadline(begins); err != nil {
				return nil, err
			}
			continue
		}
		frames = append(frames, body)
		left -= len(body)
		if flags&flagMore == 0 {
			return frames, nil
		}
		if len(frames) == z.limits.Frames {
			return nil, fmt.Errorf("%w: more than %d frames", ErrTooLarge, len(frames))
		}
	}
}

// beat answers a heartbeat. Other commands have no meaning here.
func (z *Conn) beat(body []byte) error {
	const ttl = 2 // bytes
	name, rest, ok := command(body)
	if !ok || name != "PING" || len(rest) < ttl {
		return nil
	}
	if err := z.c.SetWriteDeadline(time.Now().Add(z.limits.Begun)); err != nil {
		return err
	}
	return z.write(flagCommand, append([]byte("\x04PONG"), rest[ttl:min(len(rest), ttl+16)]...))
}

// chunk is what is allocated ahead of the bytes that arrive.
const chunk = 64 << 10

// frame reads a frame of up to most bytes. What has begun must arrive within the limit.
func (z *Conn) frame(most int) (body []byte, flags byte, err error) {
	var head [9]byte
	if _, err := io.ReadFull(z.c, head[:1]); err != nil {
		return nil, 0, err
	}
	if err := z.c.SetReadDeadline(time.Now().Add(z.limits.Begun)); err != nil {
		return nil, 0, err
	}
	flags = head[0]
	if flags&^(flagMore|flagLong|flagCommand) != 0 || flags&flagCommand != 0 && flags&flagMore != 0 {
		return nil, 0, fmt.Errorf("%w: a frame has the flags %#x", ErrProtocol, flags)
	}
	size := head[1:2]
	if flags&flagLong != 0 {
		size = head[1:9]
	}
	if _, err := io.ReadFull(z.c, size); err != nil {
		return nil, 0, unexpected(err)
	}
	n := uint64(0)
	for _, b := range size {
		n = n<<8 | uint64(b)
	}
	if n > uint64(most) {
		return nil, 0, fmt.Errorf("%w: a frame of %d bytes", ErrTooLarge, n)
	}
	for len(body) < int(n) {
		old := len(body)
		body = append(body, make([]byte, min(int(n)-old, max(chunk, old)))...)
		if _, err := io.ReadFull(z.c, body[old:]); err != nil {
			return nil, 0, unexpected(err)
		}
	}
	return body, flags, nil
}

// unexpected is the error of a frame that has begun.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
