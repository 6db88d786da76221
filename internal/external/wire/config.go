package wire

import (
	"log/slog"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Config is what an adapter must know about its server.
type Config struct {
	// Engine has the backend and how the server is reached.
	Engine cluster.EngineSpec
	Role   cluster.Role
	// URL is where the server listens; empty means Engine.Server.URL.
	URL string
	// Model is the name by which the server must know the model; empty accepts any.
	Model string
	// Asleep says that the server sleeps by an earlier order. Only engines that cannot ask their
	// server believe it.
	Asleep bool
	// Log gets what an operator should know and no error tells; nil discards it.
	Log    *slog.Logger
	Limits Limits
}

// Limits bound what a server may take of time. Zero fields have defaults.
type Limits struct {
	// Control bounds a call that computes nothing; 10 seconds.
	Control time.Duration
	// Silence bounds the time in which an answer brings not a byte; 10 minutes. It also
	// bounds the time to the first byte, which has the wait in the server's queue in it.
	Silence time.Duration
}

const (
	defaultControl = 10 * time.Second
	defaultSilence = 10 * time.Minute
)

func (l Limits) withDefaults() Limits {
	if l.Control <= 0 {
		l.Control = defaultControl
	}
	if l.Silence <= 0 {
		l.Silence = defaultSilence
	}
	return l
}

// Address returns the URL of the server.
func (c Config) Address() string {
	if c.URL != "" {
		return c.URL
	}
	return c.Engine.Server.URL
}

// Connector returns how the server exchanges KV: the configured way, or the engine's default.
func (c Config) Connector() string {
	if name := c.Engine.Server.Connector; name != "" {
		return name
	}
	if known := cluster.ExternalConnectors(c.Engine.Backend); len(known) > 0 {
		return known[0]
	}
	return ConnectorNone
}

// ConnectorNone is the connector of servers that exchange no KV.
const ConnectorNone = "none"

// Logger returns Log, or one that discards everything.
func (c Config) Logger() *slog.Logger {
	if c.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Log
}
