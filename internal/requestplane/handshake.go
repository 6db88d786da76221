package requestplane

import (
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
)

// spoken is what follows the handshake of each connection. Version 1 had no proofs in
// its greeting, which was otherwise the same.
var spoken = handshake.Protocol{Name: "dynrp\x00", Version: 2}

// KeyPurpose is what the key of a request plane is derived for from the cluster's secret.
const KeyPurpose = "request plane"

// greetServer runs the client's side of the handshake.
func (c *ClientConfig) greetServer(conn net.Conn, hostport string, deadline time.Time) (net.Conn, error) {
	o := handshake.Options{Protocol: spoken, Key: c.Key, TLS: c.TLS}
	if o.TLS != nil && o.TLS.ServerName == "" && !o.TLS.InsecureSkipVerify {
		host, _, err := net.SplitHostPort(hostport)
		if err != nil {
			return nil, err
		}
		o.TLS = o.TLS.Clone()
		o.TLS.ServerName = host
	}
	return ready(handshake.Connect(conn, o, deadline))
}

// greetClient runs the server's side of the handshake.
func (c *ServerConfig) greetClient(stranger *handshake.Guest) (net.Conn, error) {
	return ready(stranger.Accept(handshake.Options{Protocol: spoken, Key: c.Key, TLS: c.TLS}, time.Now().Add(c.HandshakeTimeout)))
}

func ready(conn net.Conn, _ handshake.Session, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Time{})
}

// hopeless reports whether trying again at once cannot end in another way.
func hopeless(err error) bool {
	return errors.Is(err, handshake.ErrSecret) || errors.Is(err, handshake.ErrVersion)
}

// upgraded is the configuration for a server that wants TLS. What the server says is not
// proved, but if it was a lie the handshake fails.
func (c *ClientConfig) upgraded() (*ClientConfig, error) {
	var err error
	up := *c
	up.TLS, err = handshake.Ephemeral()
	return &up, err
}

// secured says how a connection is protected, for logs.
func secured(conn net.Conn) string {
	if _, ok := conn.(*tls.Conn); ok {
		return "tls"
	}
	return "plain"
}
