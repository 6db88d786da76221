package vllm

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
)

// The connectors.
const (
	connectorNIXL     = "nixl"
	connectorMooncake = "mooncake"
)

// Engine is one server.
type Engine struct {
	config    wire.Config
	connector string
	client    *wire.Client
	bootstrap *wire.Client // of Mooncake, of a prefill server; nil for others
	log       *slog.Logger
	warned    sync.Once

	mu      sync.Mutex
	learned *dialect // nil until the server was asked
}

// dialect is what requests depend on.
type dialect struct {
	version string // empty if it does not tell
	// generate says that tokens come from /inference/v1/generate.
	generate bool
}

var (
	_ external.Engine  = (*Engine)(nil)
	_ external.Sleeper = (*Engine)(nil)
	_ external.Encoder = (*Engine)(nil)
)

// New returns the server that the configuration names. It sends nothing.
func New(c wire.Config) (*Engine, error) {
	client, err := wire.NewClient(c)
	if err != nil {
		return nil, err
	}
	e := &Engine{config: c, connector: c.Connector(), client: client, log: c.Logger()}
	switch e.connector {
	case connectorNIXL, wire.ConnectorNone:
	case connectorMooncake:
		if c.Role != cluster.RolePrefill {
			break
		}
		at := c
		at.URL = "http://" + joinHostPort(client.Host(), e.bootstrapPort())
		at.Engine.Server.KeyFile = "" // the bootstrap server takes none
		if e.bootstrap, err = wire.NewClient(at); err != nil {
			return nil, fmt.Errorf("bootstrap server: %w", err)
		}
	default:
		return nil, fmt.Errorf("connector %q: not one of %s", e.connector, strings.Join(cluster.ExternalConnectors(cluster.BackendVLLM), ", "))
	}
	return e, nil
}

// Exchange implements external.Engine.
func (e *Engine) Exchange() external.Exchange {
	switch e.connector {
	case connectorNIXL:
		return external.ExchangeSequential
	case connectorMooncake:
		return external.ExchangeConcurrent
	}
	return external.ExchangeNone
}

// Health implements external.Engine.
func (e *Engine) Health(ctx context.Context) error {
	_, err := e.client.Get(ctx, "/health")
	return wire.Remote(ctx, err)
}

// Close implements external.Engine.
func (e *Engine) Close() {
	e.client.Close()
	if e.bootstrap != nil {
		e.bootstrap.Close()
	}
}

// dialect asks the server, once, what requests depend on.
func (e *Engine) dialect(ctx context.Context) (dialect, error) {
	e.mu.Lock()
	known := e.learned
	e.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	return e.learn(ctx)
}

// learn asks the server. A server that tells no version is not vLLM itself: it tells tokens
// where it has the endpoint that has no other answer.
func (e *Engine) learn(ctx context.Context) (dialect, error) {
	var d dialect
	var v struct {
		Version string `json:"version"`
	}
	err := e.client.GetJSON(ctx, "/version", &v)
	if err = wire.Optional(err); err != nil {
		return d, err
	}
	d.version = v.Version
	completions, err := e.has(ctx, "/v1/completions")
	if err != nil {
		return d, err
	}
	if d.version == "" || !completions {
		if d.generate, err = e.has(ctx, "/inference/v1/generate"); err != nil {
			return d, err
		}
	}
	e.mu.Lock()
	e.learned = &d
	e.mu.Unlock()
	return d, nil
}

// has reports whether the server takes POST requests at a path: it refuses others then.
func (e *Engine) has(ctx context.Context, path string) (bool, error) {
	_, err := e.client.Get(ctx, path)
	if wire.WrongMethod(err) {
		return true, nil
	}
	return false, wire.Optional(err)
}

// older reports whether a version is known to be before major.minor.
func older(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, err1 := strconv.Atoi(parts[0])
	b, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (a < major || a == major && b < minor)
}
