package requestplane

import (
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/natspipe"
)

// Limits bound the load of one server. Zero fields mean the defaults.
type Limits struct {
	// MaxInFlight is the number of requests running at a time, over all
	// endpoints; more are refused with ErrOverloaded. Default 10000.
	MaxInFlight int
	// MaxMessage is the largest request or item in bytes, encoded. Default 32 MiB.
	MaxMessage int
}

// Defaults of [Limits].
const (
	DefaultMaxInFlight = 10000
	DefaultMaxMessage  = 32 << 20
)

func (l Limits) withDefaults() Limits {
	if l.MaxInFlight <= 0 {
		l.MaxInFlight = DefaultMaxInFlight
	}
	if l.MaxMessage <= 0 {
		l.MaxMessage = DefaultMaxMessage
	}
	return l
}

// Liveness says how soon a silent peer counts as dead. Zero fields mean the defaults.
type Liveness struct {
	// KeepAlive is the interval of pings on each connection. Default 3 s.
	KeepAlive time.Duration
	// PeerTimeout is the time a peer has to answer a ping or to accept bytes before the
	// connection is closed. Default 7 s, so that a dead peer is noticed within the usual
	// lease time of 10 s.
	PeerTimeout time.Duration
}

func (l Liveness) withDefaults() Liveness {
	if l.KeepAlive <= 0 {
		l.KeepAlive = 3 * time.Second
	}
	if l.PeerTimeout <= 0 {
		l.PeerTimeout = 7 * time.Second
	}
	return l
}

// ServerConfig configures [ListenTCP], [ListenHTTP] and [ListenNATS].
type ServerConfig struct {
	// Addr is the address to listen on. Default "127.0.0.1:0", any free loopback port. The
	// nats plane has none.
	Addr string
	// Pipes make connections over NATS, for the nats plane. The server does not close them.
	Pipes *natspipe.Hub
	// Key authenticates both sides: client and server prove to each other that they know
	// it. A server cannot start without a key.
	Key handshake.Key
	// TLS makes the server speak TLS and refuse clients that do not; nil means plain TCP.
	TLS *tls.Config
	// HandshakeTimeout limits the handshake of a new connection, and the wait for the
	// first byte of a request on a new stream. Default 5 s.
	HandshakeTimeout time.Duration
	// CloseGrace limits the wait of Close for handlers to return. Default 5 s.
	CloseGrace time.Duration
	Limits     Limits
	Liveness   Liveness
	Log        *slog.Logger // nil discards
}

func (c ServerConfig) withDefaults() ServerConfig {
	if c.Addr == "" {
		c.Addr = "127.0.0.1:0"
	}
	if c.HandshakeTimeout <= 0 {
		c.HandshakeTimeout = 5 * time.Second
	}
	if c.CloseGrace <= 0 {
		c.CloseGrace = closeGrace
	}
	c.Limits = c.Limits.withDefaults()
	c.Liveness = c.Liveness.withDefaults()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// ClientConfig configures [NewClient].
type ClientConfig struct {
	// Key authenticates both sides, as in [ServerConfig]. Without a key every call fails.
	Key handshake.Key
	// NoKey is the error of calls without a Key. It says why there is none and what to
	// do.
	NoKey error
	// TLS makes the client speak TLS and refuse servers that do not. Nil means plain TCP.
	// If the server demands TLS, nil means TLS without verifying the certificate. An
	// empty ServerName is filled in from the address.
	TLS *tls.Config
	// Pipes returns what makes connections to servers of the nats plane. It is called at the
	// first call to one; without it, such calls fail. The client does not close them.
	Pipes func() (*natspipe.Hub, error)
	// ConnectTimeout bounds dialing and handshake together. Default 3 s.
	ConnectTimeout time.Duration
	// IdleTimeout closes connections without streams. Default 5 min.
	IdleTimeout time.Duration
	// MaxMessage is as in [Limits].
	MaxMessage int
	Liveness   Liveness
	Log        *slog.Logger // nil discards
}

func (c ClientConfig) withDefaults() ClientConfig {
	if c.ConnectTimeout <= 0 {
		c.ConnectTimeout = 3 * time.Second
	}
	if c.IdleTimeout <= 0 {
		c.IdleTimeout = 5 * time.Minute
	}
	if c.MaxMessage <= 0 {
		c.MaxMessage = DefaultMaxMessage
	}
	c.Liveness = c.Liveness.withDefaults()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}
