package requestplane

import (
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
)

// spoken is the protocol after the handshake of each connection. The greeting of version
// 1 was the same, but without proofs.
var spoken = handshake.Protocol{Name: "dynrp\x00", Version: 2}

// spokenHTTP is the handshake of connections between nodes that carry HTTP/2.
var spokenHTTP = handshake.Protocol{Name: "dynhp\x00", Version: 1}

// KeyPurpose is the label under which the request plane's key is derived from the
// cluster's secret.
const KeyPurpose = "request plane"

// greetServer runs the client's side of the handshake.
func (c *ClientConfig) greetServer(conn net.Conn, protocol handshake.Protocol, at string, deadline time.Time) (net.Conn, error) {
	o := handshake.Options{Protocol: protocol, Key: c.Key, TLS: c.TLS}
	if o.TLS != nil && o.TLS.ServerName == "" && !o.TLS.InsecureSkipVerify {
		host, _, err := net.SplitHostPort(at)
		if err != nil {
			host = at // a subject
		}
		o.TLS = o.TLS.Clone()
		o.TLS.ServerName = host
	}
	return ready(handshake.Connect(conn, o, deadline))
}

// greetClient runs the server's side of the handshake. With [handshake.ErrForeign] it
// returns a connection, too: see [handshake.Accept].
func (c *ServerConfig) greetClient(protocol handshake.Protocol, stranger *handshake.Guest) (net.Conn, error) {
	return ready(stranger.Accept(handshake.Options{Protocol: protocol, Key: c.Key, TLS: c.TLS}, time.Now().Add(c.HandshakeTimeout)))
}

func ready(conn net.Conn, _ handshake.Session, err error) (net.Conn, error) {
	if err != nil && !errors.Is(err, handshake.ErrForeign) {
		return nil, err
	}
	if clearErr := conn.SetDeadline(time.Time{}); clearErr != nil {
		return nil, clearErr
	}
	return conn, err
}

// hopeless reports whether an immediate retry would fail in the same way.
func hopeless(err error) bool {
	return errors.Is(err, handshake.ErrSecret) || errors.Is(err, handshake.ErrVersion)
}

// upgraded returns the configuration for a server that demands TLS. The demand itself is
// not authenticated, but after a forged one the handshake fails.
func (c *ClientConfig) upgraded() (*ClientConfig, error) {
	var err error
	up := *c
	up.TLS, err = handshake.Ephemeral()
	return &up, err
}

// secured names the protection of a connection, for logs.
func secured(conn net.Conn) string {
	if _, ok := conn.(*tls.Conn); ok {
		return "tls"
	}
	return "plain"
}
