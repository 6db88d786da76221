package sglang

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
)

// connectorBootstrap is the connector: rooms at bootstrap servers, whatever moves the KV.
const connectorBootstrap = "bootstrap"

// Engine is one server.
type Engine struct {
	config    wire.Config
	connector string
	client    *wire.Client
	// asleep is what the last order was: the server cannot be asked.
	asleep atomic.Bool
}

var (
	_ external.Engine  = (*Engine)(nil)
	_ external.Sleeper = (*Engine)(nil)
)

// New returns the server that the configuration names. It sends nothing.
func New(c wire.Config) (*Engine, error) {
	client, err := wire.NewClient(c)
	if err != nil {
		return nil, err
	}
	e := &Engine{config: c, connector: c.Connector(), client: client}
	e.asleep.Store(c.Asleep)
	if e.connector != connectorBootstrap && e.connector != wire.ConnectorNone {
		return nil, fmt.Errorf("connector %q: not one of %s", e.connector, strings.Join(cluster.ExternalConnectors(cluster.BackendSGLang), ", "))
	}
	return e, nil
}

// Exchange implements external.Engine.
func (e *Engine) Exchange() external.Exchange {
	if e.connector == connectorBootstrap {
		return external.ExchangeConcurrent
	}
	return external.ExchangeNone
}

// alive are paths that show that the scheduler lives, the newest first. /health is not among
// them: it may generate a token.
var alive = []string{"/v1/loads", "/get_load", "/server_info", "/get_server_info"}

// Health implements external.Engine.
func (e *Engine) Health(ctx context.Context) error {
	_, err := e.first(ctx, alive)
	return wire.Remote(ctx, err)
}

// first asks for the first of the paths that the server has.
func (e *Engine) first(ctx context.Context, paths []string) (b []byte, err error) {
	for _, path := range paths {
		if b, err = e.client.Get(ctx, path); !wire.Missing(err) {
			return b, err
		}
	}
	return nil, err
}

// Close implements external.Engine.
func (e *Engine) Close() { e.client.Close() }

// abortTime bounds the call that ends a request.
const abortTime = 2 * time.Second

// abort has the server end a request after ctx ended. The connection is closed already, which
// servers notice in their time; this is sooner.
func (e *Engine) abort(ctx context.Context, rid string) {
	if ctx.Err() == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
	defer cancel()
	var o wire.Object
	o.Text("rid", rid)
	_, _ = e.client.Compute(ctx, "/abort_request", nil, o.Bytes()) // the closed connection stands
}
