package router

import (
	"github.com/dynctl/dynctl/internal/cluster"
)

// Observe makes the Load call on for each change of its own router's flights, in the order
// of the changes. on must return at once and must not call the Load. Observe must come
// before the first Choose.
func (l *Load) Observe(on func(cluster.FlightChange)) { l.observer = on }

// tellBegin tells the observer of a new flight.
func (l *Load) tellBegin(f *Flight) {
	if l.observer == nil {
		return
	}
	l.flights++
	f.number = l.flights
	l.observer(cluster.FlightChange{Kind: cluster.FlightBegin, Flight: f.number, Worker: f.id, Hashes: f.hashes, Uncached: f.prefill})
}

// tell tells the observer of a change of a flight.
func (l *Load) tell(f *Flight, kind cluster.FlightKind) {
	if l.observer == nil {
		return
	}
	c := cluster.FlightChange{Kind: kind, Flight: f.number}
	if kind == cluster.FlightGrown {
		c.Blocks = f.told
	}
	l.observer(c)
}

// Mirror books the flights of another router in a Load. It is not safe for concurrent use,
// but other users of the Load need no care.
type Mirror struct {
	load    *Load
	flights map[uint64]*Flight
}

// NewMirror returns a mirror without flights.
func NewMirror(l *Load) *Mirror { return &Mirror{load: l, flights: map[uint64]*Flight{}} }

// Len returns the number of flights.
func (m *Mirror) Len() int { return len(m.flights) }

// Apply applies a change. It returns false for the begin of a flight that has begun.
// Changes of flights that are unknown change nothing.
func (m *Mirror) Apply(c cluster.FlightChange) bool {
	m.load.mu.Lock()
	defer m.load.mu.Unlock()
	return m.apply(c, true)
}

// Replace ends all flights and applies changes, in one step: no choice sees a part of it.
func (m *Mirror) Replace(changes []cluster.FlightChange) {
	m.load.mu.Lock()
	defer m.load.mu.Unlock()
	for _, f := range m.flights {
		f.end()
	}
	clear(m.flights)
	for _, c := range changes { // most of these flights were counted as computed before
		m.apply(c, false)
	}
}

// apply applies a change; fresh says that a new flight is computed after this.
func (m *Mirror) apply(c cluster.FlightChange, fresh bool) bool {
	f := m.flights[c.Flight]
	switch {
	case c.Kind == cluster.FlightBegin && f != nil:
		return false
	case c.Kind == cluster.FlightBegin:
		begun := m.load.book(c.Worker, Request{Hashes: c.Hashes}, c.Uncached)
		m.flights[c.Flight] = begun
		if fresh {
			m.load.evicts.add(begun.worker, c.Uncached, m.load.workers.all)
		}
	case f == nil:
	case c.Kind == cluster.FlightPrefilled:
		f.endPrefill()
	case c.Kind == cluster.FlightGrown:
		f.grow(max(0, c.Blocks))
	case c.Kind == cluster.FlightEnd:
		f.end()
		delete(m.flights, c.Flight)
	}
	return true
}
