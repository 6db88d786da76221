package dynamo

import (
	"context"
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/store"
)

// Local is a cluster within this process, without sockets and without a dynamod.
type Local struct {
	store *store.Memory
	plane *requestplane.Memory
	bus   *events.Memory
}

// NewLocal returns an empty cluster. The caller closes it.
func NewLocal() *Local {
	return &Local{store: store.NewMemory(nil), plane: requestplane.NewMemory(), bus: events.NewMemory()}
}

// Connect joins the cluster as one more participant. The settings of the environment do not
// matter.
func (l *Local) Connect(ctx context.Context, opts ...Option) (*Runtime, error) {
	o := apply(opts)
	return l.connect(ctx, o, &Runtime{log: o.log})
}

// connect brings up a runtime, which may have to end other things, too.
func (l *Local) connect(ctx context.Context, o options, r *Runtime) (*Runtime, error) {
	server, client, bus := l.plane.NewServer(requestplane.Limits{}, o.log), l.plane.NewClient(), l.bus.Join()
	r.back.Push("leave the event plane", func(context.Context) error { return bus.Close() })
	r.back.Push("stop the request plane", func(context.Context) error { return server.Close() })
	r.back.Push("close the request plane's connections", func(context.Context) error { return client.Close() })
	err := r.begin(ctx, runtime.Config{Store: l.store, Server: server, Client: client, Bus: bus, Namespace: o.namespace, Worker: o.name, Log: o.log})
	if err != nil {
		r.back.Run(partTimeout, r.log)
		return nil, fmt.Errorf("connect: %w", err)
	}
	return r, nil
}

// alone connects to a cluster that has no other participant, and ends with it.
func alone(ctx context.Context, o options) (*Runtime, error) {
	l, r := NewLocal(), &Runtime{log: o.log}
	r.back.Push("end the cluster", func(context.Context) error { return l.Close() })
	return l.connect(ctx, o, r)
}

// Close ends the cluster. Its participants are closed first.
func (l *Local) Close() error { return errors.Join(l.bus.Close(), l.store.Close()) }
