package client

import (
	"errors"
	"sync"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/natspipe"
)

// pipes lead to nodes that serve requests over NATS. Most commands need none, so there is no
// connection before the first one.
type pipes struct {
	mu  sync.Mutex
	bus *events.NATS
	hub *natspipe.Hub
}

func (c *Cluster) openPipes() (*natspipe.Hub, error) {
	p := &c.pipes
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hub != nil {
		return p.hub, nil
	}
	bus, err := c.Bus()
	if err != nil {
		return nil, err
	}
	if bus == nil {
		return nil, errors.New("the node serves requests over NATS, whose address is not known here: set NATS_SERVER")
	}
	p.bus, p.hub = bus, natspipe.New(bus, natspipe.Config{Log: c.log})
	return p.hub, nil
}

// close follows the end of all calls.
func (p *pipes) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hub == nil {
		return nil
	}
	return errors.Join(p.hub.Close(), p.bus.Close())
}
