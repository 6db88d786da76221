package local

import (
	"crypto/rand"
	"fmt"
	"runtime"
	"sync"

	"github.com/dynctl/dynctl/internal/nixl"
)

// Name is the name of this transport.
const Name = "local"

// Registry knows the agents of one process.
type Registry struct {
	id    [16]byte      // peers of another registry are in another process
	slots chan struct{} // one per copy that may run at a time

	mu     sync.Mutex
	agents map[agentKey]*transport
}

type agentKey struct{ name, incarnation string }

// NewRegistry returns an empty registry. At most copies chunks are copied at the
// same time; zero means half of the processors, at least 2.
func NewRegistry(copies int) *Registry {
	if copies <= 0 {
		copies = max(2, runtime.GOMAXPROCS(0)/2)
	}
	r := &Registry{slots: make(chan struct{}, copies), agents: map[agentKey]*transport{}}
	rand.Read(r.id[:]) // never fails
	return r
}

// Transport returns a transport for one agent, to be put into its Config.
func (r *Registry) Transport() nixl.Transport {
	return &transport{reg: r, inbound: map[*link]struct{}{}}
}

func (r *Registry) add(k agentKey, t *transport) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.agents[k] != nil {
		return fmt.Errorf("agent %q, incarnation %s, exists in this process: %w", k.name, k.incarnation, nixl.ErrInvalidParam)
	}
	r.agents[k] = t
	return nil
}

func (r *Registry) remove(k agentKey, t *transport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.agents[k] == t {
		delete(r.agents, k)
	}
}

func (r *Registry) find(k agentKey) *transport {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.agents[k]
}
