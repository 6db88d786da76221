package router

import (
	"sync"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Load counts the requests that one router has in flight on each worker. Only Load
// changes these counts.
type Load struct {
	mu sync.Mutex
	n  map[cluster.InstanceID]int
}

// NewLoad returns an empty Load.
func NewLoad() *Load { return &Load{n: map[cluster.InstanceID]int{}} }

// Choose fills in the load of the candidates, calls pick and counts the chosen worker. It
// does so in one step, so that concurrent requests see each other. The caller must call
// the returned release once, when the request has left the worker.
func (l *Load) Choose(candidates []Candidate, pick func([]Candidate) (Decision, error)) (Decision, func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range candidates {
		candidates[i].InFlight = l.n[candidates[i].ID]
	}
	d, err := pick(candidates)
	if err != nil {
		return d, func() {}, err
	}
	id := d.Chosen.ID
	l.n[id]++
	return d, sync.OnceFunc(func() { l.release(id) }), nil
}

func (l *Load) release(id cluster.InstanceID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n[id]--; l.n[id] == 0 {
		delete(l.n, id) // workers that are gone leave no entry
	}
}

// InFlight returns the number of requests on one worker.
func (l *Load) InFlight(id cluster.InstanceID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n[id]
}
