package frontend

import (
	"context"
	"sync"
)

// loads bounds the images that are loaded at the same time, by all clients and by each: what
// is on its way takes memory that nobody has counted yet, and a slow server must not keep the
// images of others waiting.
type loads struct {
	most, each int

	mu   sync.Mutex
	all  int
	by   map[string]int // by tenant; those with none are absent
	more chan struct{}  // closed when one has ended
}

// Limits of [loads].
const (
	maxLoads       = 32
	maxTenantLoads = 8
)

func newLoads() *loads {
	return &loads{most: maxLoads, each: maxTenantLoads, by: map[string]int{}, more: make(chan struct{})}
}

// enter waits for room for one more of a tenant, until ctx ends.
func (l *loads) enter(ctx context.Context, tenant string) (leave func(), err error) {
	for {
		l.mu.Lock()
		if l.all < l.most && l.by[tenant] < l.each {
			l.all++
			l.by[tenant]++
			l.mu.Unlock()
			return func() { l.leave(tenant) }, nil
		}
		more := l.more
		l.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (l *loads) leave(tenant string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.by[tenant]--; l.by[tenant] == 0 {
		delete(l.by, tenant)
	}
	close(l.more)
	l.more = make(chan struct{})
}
