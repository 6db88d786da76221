package runtime

import (
	"context"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Namespace is a namespace as a runtime uses it. A runtime may use any number of them, all
// under one lease.
type Namespace struct {
	d    *DistributedRuntime
	name string
}

// Component is a component of a [Namespace].
type Component struct {
	ns   Namespace
	name string
}

// Endpoint is an endpoint of a [Component]: to be served, or to be called. Its names are
// checked then.
type Endpoint struct {
	d    *DistributedRuntime
	name cluster.Endpoint
}

// In returns a namespace. An empty name is that of the configuration.
func (d *DistributedRuntime) In(namespace string) Namespace {
	if namespace == "" {
		namespace = d.cfg.Namespace
	}
	return Namespace{d, namespace}
}

// Endpoint returns an endpoint by its name.
func (d *DistributedRuntime) Endpoint(name cluster.Endpoint) Endpoint { return Endpoint{d, name} }

// Name returns the whole name, with dots between levels.
func (n Namespace) Name() string { return n.name }

// Namespace returns a namespace within n.
func (n Namespace) Namespace(name string) Namespace { return Namespace{n.d, n.name + "." + name} }

// Component returns a component of n.
func (n Namespace) Component(name string) Component { return Component{n, name} }

// Endpoint returns an endpoint of c.
func (c Component) Endpoint(name string) Endpoint {
	return Endpoint{c.ns.d, cluster.Endpoint{Namespace: c.ns.name, Component: c.name, Name: name}}
}

// Name returns the name of the endpoint.
func (e Endpoint) Name() cluster.Endpoint { return e.name }

// Serve answers requests for the endpoint. It registers the endpoint last, so that others
// never find one that does not answer yet. A runtime serves each endpoint only once.
func (e Endpoint) Serve(ctx context.Context, h requestplane.Handler, opts ...ServeOption) (*Served, error) {
	return e.d.serve(ctx, e.name, h, opts)
}

// Announce registers the endpoint, which another server answers at transport, such as an
// HTTP frontend.
func (e Endpoint) Announce(ctx context.Context, transport cluster.Transport) (*Served, error) {
	s := &Served{d: e.d, name: e.name, transport: transport}
	return s.start(ctx)
}

// Client follows the instances of the endpoint, as [NewClient] does.
func (e Endpoint) Client(ctx context.Context) (*Client, error) {
	cfg := e.d.cfg
	cfg.Namespace = e.name.Namespace
	return NewClient(ctx, cfg, e.name.Component, e.name.Name)
}
