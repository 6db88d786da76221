package handshake

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Errors of a handshake, for errors.Is.
var (
	// ErrSecret is returned when the other side does not know the key.
	ErrSecret = errors.New("the other side does not have this cluster's secret (secret_file)")
	// ErrNoKey is returned when this side has no key.
	ErrNoKey = errors.New("no key of the cluster's secret")
	// ErrForeign is returned when the peer uses another protocol.
	ErrForeign = errors.New("the peer uses another protocol")
	// ErrVersion is returned when the peer uses another protocol version of the protocol.
	ErrVersion = errors.New("the peer uses another protocol version")
	// ErrWantsTLS is returned when one side requires TLS and the other does not speak it.
	ErrWantsTLS = errors.New("TLS is asked for")
	// ErrCrowded is returned by [Guest.Accept] when the connection was closed to make room
	// in its lobby.
	ErrCrowded = errors.New("too many connections without proof of the secret")
)

const keyLen = 32

// Key is the secret that both sides must know. The zero Key means that there is none.
// Formatting a Key shows only whether there is one.
type Key struct{ b [keyLen]byte }

// NewKey makes a key of 32 bytes. It returns the zero Key for any other length.
func NewKey(b []byte) (k Key) {
	if len(b) == keyLen {
		copy(k.b[:], b)
	}
	return k
}

// RandomKey returns a new random key.
func RandomKey() (k Key) {
	_, _ = rand.Read(k.b[:]) // never fails
	return k
}

// IsZero reports whether there is no key.
func (k Key) IsZero() bool { return k == Key{} }

// String says whether there is a key, without revealing it.
func (k Key) String() string {
	if k.IsZero() {
		return "no key"
	}
	return "a key"
}

// GoString keeps %#v from printing the bytes.
func (k Key) GoString() string { return k.String() }

// Protocol identifies the protocol that follows the handshake.
type Protocol struct {
	Name    string // nameLen bytes; must not begin like the first bytes of other protocols
	Version byte
}

const (
	nameLen  = 6
	greetLen = nameLen + 2
	nonceLen = 32
	helloLen = greetLen + nonceLen
	proofLen = sha256.Size

	label = "dynctl handshake 1"

	tlsRecord = 0x16 // first byte of a TLS connection
)

const (
	statusOK byte = iota
	statusVersion
	statusTLS
	statusSecret
)

// Session holds values that only the two sides of a finished handshake know.
type Session struct {
	// Key is unique to this connection: 32 bytes.
	Key []byte
}

// Options configure one side of a handshake.
type Options struct {
	Protocol Protocol
	Key      Key
	// TLS, if set, makes the connection speak TLS and refuse peers that do not. Both
	// sides verify certificates as configured there.
	TLS *tls.Config
}

func (o Options) check() error {
	switch {
	case o.Key.IsZero():
		return ErrNoKey
	case len(o.Protocol.Name) != nameLen:
		panic("handshake: protocol " + o.Protocol.Name)
	}
	return nil
}

// Connect runs the client's side of the handshake on a new connection. It returns that
// connection, or TLS on top of it. It sets the deadline on the connection and leaves it
// there. After an error the caller closes the connection.
func Connect(raw net.Conn, o Options, deadline time.Time) (net.Conn, Session, error) {
	if err := o.check(); err != nil {
		return nil, Session{}, err
	}
	if err := raw.SetDeadline(deadline); err != nil {
		return nil, Session{}, err
	}
	conn := raw
	if o.TLS != nil {
		tc := tls.Client(raw, o.TLS)
		if err := shakeTLS(tc, deadline); err != nil {
			return nil, Session{}, fmt.Errorf("tls handshake: %w (does the other side have tls on?)", err)
		}
		conn = tc
	}
	s, err := connect(conn, o)
	return conn, s, err
}

func connect(conn net.Conn, o Options) (Session, error) {
	own := o.Protocol.hello()
	if _, err := conn.Write(own); err != nil {
		return Session{}, err
	}
	var theirs [helloLen]byte
	status, err := o.Protocol.read(conn, theirs[:])
	switch {
	case err != nil:
		return Session{}, err
	case status == statusTLS:
		return Session{}, fmt.Errorf("%w by the server", ErrWantsTLS)
	case status != statusOK:
		return Session{}, fmt.Errorf("%w: status %d", ErrForeign, status)
	}
	t, err := transcript(conn, own, theirs[:])
	if err != nil {
		return Session{}, err
	}
	if _, err := conn.Write(o.Key.prove("client", t)); err != nil {
		return Session{}, err
	}
	var answer [1 + proofLen]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return Session{}, fmt.Errorf("read the server's proof: %w", err)
	}
	if answer[0] == statusSecret {
		return Session{}, fmt.Errorf("refused by the server: %w", ErrSecret)
	}
	if answer[0] != statusOK || !hmac.Equal(answer[1:], o.Key.prove("server", t)) {
		return Session{}, fmt.Errorf("no proof by the server: %w", ErrSecret)
	}
	return o.Key.session(t), nil
}

// Accept runs the server's side of the handshake on a new connection. It returns that
// connection, or TLS on top of it. It sets the deadline on the connection and leaves it
// there. After an error the caller closes the connection.
//
// With ErrForeign, Accept returns a connection too, on top of TLS if the client uses it.
// Nobody has proved anything on it; reading it begins with the client's first byte.
func Accept(raw net.Conn, o Options, deadline time.Time) (net.Conn, Session, error) {
	if err := o.check(); err != nil {
		return nil, Session{}, err
	}
	if err := raw.SetDeadline(deadline); err != nil {
		return nil, Session{}, err
	}
	conn := raw
	if o.TLS != nil {
		var first [1]byte
		if _, err := io.ReadFull(raw, first[:]); err != nil {
			return nil, Session{}, fmt.Errorf("read greeting: %w", err)
		}
		conn = &unread{raw, first[:]}
		if first[0] == tlsRecord {
			tc := tls.Server(conn, o.TLS)
			if err := shakeTLS(tc, deadline); err != nil {
				return nil, Session{}, fmt.Errorf("tls handshake: %w", err)
			}
			conn = tc
		}
	}
	s, err := accept(conn, o)
	if foreign, ok := errors.AsType[*foreignError](err); ok {
		conn = &unread{conn, foreign.begin}
	}
	return conn, s, err
}

// foreignError is ErrForeign with the bytes that were read.
type foreignError struct{ begin []byte }

func (e *foreignError) Error() string {
	return fmt.Sprintf("%v, which begins with %q", ErrForeign, e.begin)
}
func (e *foreignError) Unwrap() error { return ErrForeign }

func accept(conn net.Conn, o Options) (Session, error) {
	var theirs [helloLen]byte
	status, err := o.Protocol.read(conn, theirs[:])
	switch {
	case errors.Is(err, ErrVersion):
		_, _ = conn.Write(o.Protocol.greeting(statusVersion))
		return Session{}, err
	case err != nil:
		return Session{}, err
	case status != statusOK:
		return Session{}, fmt.Errorf("%w: a client with status %d", ErrForeign, status)
	}
	if _, isTLS := conn.(*tls.Conn); o.TLS != nil && !isTLS {
		_, _ = conn.Write(o.Protocol.greeting(statusTLS))
		return Session{}, fmt.Errorf("%w by the server, and the client does not use it", ErrWantsTLS)
	}
	own := o.Protocol.hello()
	t, err := transcript(conn, theirs[:], own)
	if err != nil {
		return Session{}, err
	}
	if _, err := conn.Write(own); err != nil {
		return Session{}, err
	}
	var proof [proofLen]byte
	if _, err := io.ReadFull(conn, proof[:]); err != nil {
		return Session{}, fmt.Errorf("read the client's proof: %w", err)
	}
	answer := make([]byte, 1, 1+proofLen)
	if !hmac.Equal(proof[:], o.Key.prove("client", t)) {
		answer[0] = statusSecret
		_, _ = conn.Write(answer[:1+proofLen]) // tells the client why the connection ends
		return Session{}, fmt.Errorf("no proof by the client: %w", ErrSecret)
	}
	if _, err := conn.Write(append(answer, o.Key.prove("server", t)...)); err != nil {
		return Session{}, err
	}
	return o.Key.session(t), nil
}

func shakeTLS(tc *tls.Conn, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	return tc.HandshakeContext(ctx)
}

func (p Protocol) greeting(status byte) []byte {
	return append([]byte(p.Name), p.Version, status)
}

// hello returns a side's first message.
func (p Protocol) hello() []byte {
	b := append(make([]byte, 0, helloLen), p.greeting(statusOK)...)
	b = b[:helloLen]
	_, _ = rand.Read(b[greetLen:]) // never fails
	return b
}

// read reads the other side's first message into b. It does not wait for a nonce if the
// protocol is another one or the status is not 0, because then there is none.
func (p Protocol) read(conn net.Conn, b []byte) (status byte, err error) {
	if _, err := io.ReadFull(conn, b[:greetLen]); err != nil {
		return 0, fmt.Errorf("read greeting: %w", err)
	}
	status = b[greetLen-1]
	switch {
	case string(b[:nameLen]) != p.Name:
		return 0, &foreignError{b[:greetLen]}
	case b[nameLen] != p.Version:
		return status, fmt.Errorf("%w: %d of %q, this side speaks %d", ErrVersion, b[nameLen], printable(p.Name), p.Version)
	case status != statusOK:
		return status, nil
	}
	if _, err := io.ReadFull(conn, b[greetLen:]); err != nil {
		return 0, fmt.Errorf("read greeting: %w", err)
	}
	return status, nil
}

func printable(name string) string {
	for len(name) > 0 && name[len(name)-1] == 0 {
		name = name[:len(name)-1]
	}
	return name
}

// transcript returns the hash T, which both proofs cover. All its parts have fixed
// lengths, except the binding at the end.
func transcript(conn net.Conn, client, server []byte) ([]byte, error) {
	h := sha256.New()
	h.Write([]byte(label))
	h.Write(client)
	h.Write(server)
	if tc, ok := conn.(*tls.Conn); ok {
		state := tc.ConnectionState()
		if state.Version < tls.VersionTLS13 {
			return nil, errors.New("TLS before version 1.3 cannot be bound to the handshake")
		}
		binding, err := state.ExportKeyingMaterial("EXPORTER-Channel-Binding", nil, 32)
		if err != nil {
			return nil, fmt.Errorf("channel binding: %w", err)
		}
		h.Write(binding)
	}
	return h.Sum(nil), nil
}

func (k Key) prove(side string, transcript []byte) []byte {
	m := hmac.New(sha256.New, k.b[:])
	m.Write([]byte(side))
	m.Write([]byte{0})
	m.Write(transcript)
	return m.Sum(nil)
}

// Token returns a text that shows knowledge of the key, for one purpose: 64 hex digits. It
// is no secret only as long as nobody else reads it: use it over TLS or inside one machine.
func (k Key) Token(purpose string) string {
	return hex.EncodeToString(k.prove("token", []byte(purpose)))
}

func (k Key) session(transcript []byte) Session {
	key, err := hkdf.Key(sha256.New, k.b[:], transcript, label+" session", keyLen)
	if err != nil {
		panic(err) // only for lengths that are never used here
	}
	return Session{Key: key}
}

// unread is a connection with some bytes that were read ahead. Its Unwrap returns the
// connection without them.
type unread struct {
	net.Conn
	head []byte
}

func (u *unread) Read(p []byte) (int, error) {
	if len(u.head) > 0 {
		n := copy(p, u.head)
		u.head = u.head[n:]
		return n, nil
	}
	return u.Conn.Read(p)
}

func (u *unread) Unwrap() net.Conn { return u.Conn }
