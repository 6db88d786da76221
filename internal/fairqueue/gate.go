package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrFull is returned by Reserve when too many units wait already.
var ErrFull = errors.New("queue is full")

// Limits bound the units that wait at a Gate. A tenant may have as many waiting as are
// still free for everyone. A single tenant thus gets half of the limit, and there is
// always room for a new one.
type Limits struct {
	Waiting int   // units
	Cost    int64 // sum of the costs given to Reserve
}

// Gate limits the units in use at a time. When none is free, requests wait, in turns
// between tenants. A tenant with less than an equal share of the units does not wait: it
// may exceed the capacity, up to its share, because the units in use cannot be taken
// back. In total at most twice the capacity is in use, with any number of tenants.
//
// A Gate is safe for concurrent use.
type Gate struct {
	limits Limits

	mu       sync.Mutex
	capacity int
	queue    Queue[*Pass]
	used     int
	by       map[string]*units // tenants with units in use or waiting
}

// units counts the units of one tenant.
type units struct{ used, waiting int }

// NewGate returns a gate for capacity units.
func NewGate(capacity int, limits Limits) *Gate {
	return &Gate{limits: limits, capacity: capacity, by: map[string]*units{}}
}

// SetCapacity changes the number of units that may be in use.
func (g *Gate) SetCapacity(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.capacity = n
	g.admit("")
}

// Pass is one unit: first a place in the queue, then the right to use the unit.
type Pass struct {
	g      *Gate
	tenant string
	entry  *Entry[*Pass]
	open   chan struct{} // closed when it is admitted
	used   bool
	ended  bool
}

// Reserve takes n places in the queue for a tenant, each of the given cost. Of one tenant,
// what is due first is admitted first; due has any unit. Reserve fails with ErrFull and
// takes no place if they exceed the limits. The caller must call Leave on every pass.
func (g *Gate) Reserve(tenant string, n int, cost int64, due float64) ([]*Pass, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	waiting, taken := g.queue.Of(tenant)
	// Units that can be admitted at once do not count as waiting, however many wait.
	queued := max(n-max(g.capacity-g.used, 0), 0)
	if free := g.limits.Waiting - g.queue.Len(); queued > 0 && waiting+queued > free {
		return nil, fmt.Errorf("%w: %d of its sequences wait, %d of all, and %d came", ErrFull, waiting, g.queue.Len(), n)
	}
	if free := g.limits.Cost - g.queue.Cost(); queued > 0 && taken+int64(queued)*cost > free {
		return nil, fmt.Errorf("%w: prompts of %d tokens wait, %d of all, and %d came", ErrFull, taken, g.queue.Cost(), int64(n)*cost)
	}
	if n <= 0 {
		return nil, nil
	}
	u := g.by[tenant]
	if u == nil {
		u = &units{}
		g.by[tenant] = u
	}
	u.waiting += n
	passes := make([]*Pass, n)
	for i := range passes {
		p := &Pass{g: g, tenant: tenant, open: make(chan struct{})}
		p.entry = g.queue.Insert(tenant, p, cost, due)
		passes[i] = p
	}
	g.admit(tenant)
	return passes, nil
}

// Wait waits until the unit may be used. It returns the cause of ctx if that ends first.
func (p *Pass) Wait(ctx context.Context) error {
	select {
	case <-p.open:
		return nil
	default:
	}
	select {
	case <-p.open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Charge adds work to the counter of the pass's tenant.
func (p *Pass) Charge(work float64) {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	p.g.queue.Charge(p.tenant, work)
}

// Leave returns the unit, or the place in the queue. It may be called twice.
func (p *Pass) Leave() {
	g := p.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.ended {
		return
	}
	p.ended = true
	u := g.by[p.tenant]
	if p.used {
		g.used--
		u.used--
	} else {
		g.queue.Remove(p.entry)
		u.waiting--
	}
	if u.used+u.waiting == 0 {
		delete(g.by, p.tenant)
	}
	g.admit(p.tenant)
}

// Counts returns the number of units in use and waiting, over all tenants.
func (g *Gate) Counts() (used, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used, g.queue.Len()
}

// admit admits waiting units: first in turns while units are free, then those of the
// given tenant up to its share.
func (g *Gate) admit(tenant string) {
	for g.used < g.capacity && g.queue.Len() > 0 {
		g.let(g.queue.Next())
	}
	u := g.by[tenant]
	if u == nil {
		return
	}
	for share := max(g.capacity/len(g.by), 1); u.waiting > 0 && u.used < share && g.used < 2*g.capacity; {
		g.let(g.queue.First(tenant))
	}
}

func (g *Gate) let(e *Entry[*Pass]) {
	p := e.Item
	g.queue.Take(e)
	p.used = true
	g.used++
	u := g.by[p.tenant]
	u.waiting--
	u.used++
	close(p.open)
}
