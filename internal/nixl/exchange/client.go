package exchange

import (
	"crypto/hmac"
	"crypto/rand"
	"fmt"
	"io"

	"github.com/dynctl/dynctl/internal/nixl"
)

// Client asks the agent at the other end of a connection.
type Client struct {
	ch   *channel
	peer nixl.Identity
}

// Dial begins a conversation as self over a connection, whose deadline is the caller's.
// ErrNotAllowed means that the other side does not have the same secret.
func Dial(conn io.ReadWriter, secret []byte, self nixl.Identity) (*Client, error) {
	ch, peer, err := handshake(conn, secret, self, sideClient)
	if err != nil {
		return nil, fmt.Errorf("exchange metadata: %w", err)
	}
	return &Client{ch, peer}, nil
}

// handshake greets and proves the secret, and has the other side prove it. The client
// speaks first; the server shows nothing made with the secret before the client has.
func handshake(conn io.ReadWriter, secret []byte, self nixl.Identity, side string) (*channel, nixl.Identity, error) {
	if len(secret) < MinSecret {
		return nil, nixl.Identity{}, fmt.Errorf("secret of %d bytes, at least %d: %w", len(secret), MinSecret, nixl.ErrInvalidParam)
	}
	own := greeting{from: self}
	rand.Read(own.nonce[:]) // never fails
	if _, err := conn.Write(own.encode()); err != nil {
		return nil, nixl.Identity{}, err
	}
	g, raw, err := readGreeting(conn)
	if err != nil {
		return nil, nixl.Identity{}, err
	}
	both, other := [2][]byte{own.encode(), raw}, sideServer
	if side == sideServer {
		both[0], both[1], other = both[1], both[0], sideClient
	}
	proof := func(who string) []byte { return code(secret, []byte(who), both[0], both[1]) }
	prove := func() error {
		_, err := conn.Write(proof(side))
		return err
	}
	check := func() error {
		var tag [tagLen]byte
		if _, err := io.ReadFull(conn, tag[:]); err != nil {
			return fmt.Errorf("%w: no proof of the secret: %w", nixl.ErrNotAllowed, err)
		}
		if !hmac.Equal(tag[:], proof(other)) {
			return fmt.Errorf("wrong secret: %w", nixl.ErrNotAllowed)
		}
		return nil
	}
	steps := []func() error{prove, check}
	if side == sideServer {
		steps = []func() error{check, prove}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, nixl.Identity{}, err
		}
	}
	return &channel{rw: conn, key: proof("session"), own: side, other: other}, g.from, nil
}

// Peer is the agent at the other end.
func (c *Client) Peer() nixl.Identity { return c.peer }

// Load makes the peer load a blob of this agent.
func (c *Client) Load(blob []byte) error {
	if len(blob) > nixl.MaxMetadata {
		return fmt.Errorf("send metadata of %d bytes, at most %d: %w", len(blob), nixl.MaxMetadata, nixl.ErrInvalidParam)
	}
	return c.ask(kindLoad, blob)
}

// Invalidate makes the peer forget this run of this agent.
func (c *Client) Invalidate() error { return c.ask(kindInvl, nil) }

// Send returns the peer's whole metadata.
func (c *Client) Send() ([]byte, error) {
	k, body, err := c.call(kindSend, nil)
	switch {
	case err != nil:
		return nil, err
	case k == kindBlob:
		return body, nil
	}
	if err := decodeResult(body); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("success without metadata: %w", errProtocol)
}

func (c *Client) ask(k kind, body []byte) error {
	k, body, err := c.call(k, body)
	switch {
	case err != nil:
		return err
	case k != kindResult:
		return fmt.Errorf("answer of kind %d: %w", k, errProtocol)
	}
	return decodeResult(body)
}

func (c *Client) call(k kind, body []byte) (kind, []byte, error) {
	if err := c.ch.send(k, body); err != nil {
		return 0, nil, fmt.Errorf("ask agent %q: %w: %w", c.peer.Name, nixl.ErrRemoteDisconnect, err)
	}
	k, body, err := c.ch.receive()
	if err != nil {
		return 0, nil, fmt.Errorf("answer of agent %q: %w: %w", c.peer.Name, nixl.ErrRemoteDisconnect, err)
	}
	if k != kindResult && k != kindBlob {
		return 0, nil, fmt.Errorf("answer of kind %d from agent %q: %w", k, c.peer.Name, errProtocol)
	}
	return k, body, nil
}
