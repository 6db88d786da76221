package kv

import (
	"container/list"
	"sync"
)

// A process keeps that many connections that no prompt uses, for the next one: each has
// descriptors, goroutines and mapped memory, and in a large cluster those between all
// workers would be more than what the workers themselves need. To connect again takes a
// fraction of a millisecond within a host, and more over a network.
const (
	maxIdleNear = 128  // to peers of this host
	maxIdleFar  = 1024 // to peers of other hosts
)

// idle holds the connections of the Peers of this process that nobody uses.
var idle = struct{ near, far *idleList }{newIdleList(maxIdleNear), newIdleList(maxIdleFar)}

// idleList lists idle connections by their last use, up to a limit. Its lock is taken after
// that of Peers.
type idleList struct {
	limit int

	mu    sync.Mutex
	order *list.List // of idleConn, the one used last in front
	of    map[idleConn]*list.Element
}

// idleConn is the connection of a worker of this process to an agent.
type idleConn struct {
	peers *Peers
	agent string
}

func newIdleList(limit int) *idleList {
	return &idleList{limit: limit, order: list.New(), of: map[idleConn]*list.Element{}}
}

// add lists a connection as the one used last, and returns the one that has to be closed
// for it, if any.
func (l *idleList) add(c idleConn) (victim idleConn, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[c] != nil {
		return idleConn{}, false
	}
	l.of[c] = l.order.PushFront(c)
	if l.order.Len() <= l.limit {
		return idleConn{}, false
	}
	victim, _ = l.order.Remove(l.order.Back()).(idleConn)
	delete(l.of, victim)
	return victim, true
}

func (l *idleList) remove(c idleConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.of[c]; e != nil {
		l.order.Remove(e)
		delete(l.of, c)
	}
}

// use counts a user of the connection to an agent, which stays open until leave is called.
func (p *Peers) use(agent string) (leave func()) {
	p.mu.Lock()
	p.users[agent]++
	p.mu.Unlock()
	p.busy(agent)
	return sync.OnceFunc(func() { p.leave(agent) })
}

// busy takes a connection out of the lists, and of those to be closed.
func (p *Peers) busy(agent string) {
	p.tiring.Lock()
	delete(p.tired, agent)
	p.tiring.Unlock()
	idle.near.remove(idleConn{p, agent})
	idle.far.remove(idleConn{p, agent})
}

func (p *Peers) leave(agent string) {
	p.mu.Lock()
	p.users[agent]--
	last := p.users[agent] == 0
	if last {
		delete(p.users, agent)
	}
	_, loaded := p.loaded[agent]
	kept := last && loaded && !p.ended
	p.mu.Unlock()
	if !kept {
		return
	}
	list := idle.far
	if p.p.agent.SameHost(agent) {
		list = idle.near
	}
	if victim, full := list.add(idleConn{p, agent}); full {
		victim.peers.tire(victim.agent)
	}
}

// tire has a connection closed soon. It does not wait: the Peers may be those of another
// worker, which reads the store.
func (p *Peers) tire(agent string) {
	p.tiring.Lock()
	defer p.tiring.Unlock()
	p.tired[agent] = true
	p.current.Wake()
}

// restTired closes the connections that others took the place of.
func (p *Peers) restTired() {
	p.tiring.Lock()
	tired := p.tired
	p.tired = map[string]bool{}
	p.tiring.Unlock()
	for agent := range tired {
		p.rest(agent)
	}
}

// rest closes the connection to an agent if nobody has begun to use it meanwhile.
func (p *Peers) rest(agent string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users[agent] > 0 {
		return
	}
	if err := p.p.agent.Rest(agent); err != nil {
		p.p.cfg.Log.Debug("close an unused connection", "peer", agent, "error", err)
	}
}
