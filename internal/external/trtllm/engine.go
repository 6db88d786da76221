package trtllm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
)

// The connectors: which server is asked first.
const (
	contextFirst    = "context-first"
	generationFirst = "generation-first"
)

// Engine is one server.
type Engine struct {
	config    wire.Config
	connector string
	client    *wire.Client
	ids       idSource
}

var _ external.Engine = (*Engine)(nil)

// New returns the server that the configuration names. It sends nothing.
func New(c wire.Config) (*Engine, error) {
	client, err := wire.NewClient(c)
	if err != nil {
		return nil, err
	}
	e := &Engine{config: c, connector: c.Connector(), client: client}
	if known := cluster.ExternalConnectors(cluster.BackendTensorRTLLM); !slices.Contains(known, e.connector) {
		return nil, fmt.Errorf("connector %q: not one of %s", e.connector, strings.Join(known, ", "))
	}
	e.ids.init()
	return e, nil
}

// Exchange implements external.Engine.
func (e *Engine) Exchange() external.Exchange {
	switch e.connector {
	case contextFirst:
		return external.ExchangeSequential
	case generationFirst:
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
func (e *Engine) Close() { e.client.Close() }
