package kv

import "testing"

// LimitIdle sets how many idle connections within a host are kept, until the test ends.
func LimitIdle(t *testing.T, n int) {
	old := idle.near
	idle.near = newIdleList(n)
	t.Cleanup(func() { idle.near = old })
}

// Rest closes a connection as if another one took its place.
func (p *Peers) Rest(agent string) { p.rest(agent) }
