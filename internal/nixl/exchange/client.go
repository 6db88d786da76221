package exchange

import (
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
// The key is that of the handshake which began the connection: both sides have it, and
// nobody else.
func Dial(conn io.ReadWriter, key []byte, self nixl.Identity) (*Client, error) {
	c := &Client{ch: &channel{rw: conn, key: key, own: sideClient, other: sideServer}}
	err := c.ch.send(kindHello, encodeHello(self))
	if err == nil {
		c.peer, err = c.ch.hello()
	}
	if err != nil {
		return nil, fmt.Errorf("exchange metadata: %w", err)
	}
	return c, nil
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
