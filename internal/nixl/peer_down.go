package nixl

import (
	"sync"
	"time"
)

// PeerDown tells that a connection with a peer ended. A worker that waits for
// a peer's write learns here, and not from its deadline, that it will not come.
type PeerDown struct {
	Peer        string
	Incarnation string
	Transport   string
	Inbound     bool  // the peer had connected to this agent; else this agent to the peer
	Cause       error // nil: the peer closed in an orderly way
	At          time.Time
}

// maxPeerDowns bounds the unread events; the oldest are dropped.
const maxPeerDowns = 1024

// downFeed hands PeerDown events to a reader that may be slow. Events of the same
// peer, incarnation and direction are merged while they wait.
type downFeed struct {
	out  chan PeerDown
	stop chan struct{}
	done chan struct{}
	wake chan struct{}

	mu     sync.Mutex
	queue  []PeerDown
	closed bool
}

func newDownFeed() *downFeed {
	f := &downFeed{out: make(chan PeerDown), stop: make(chan struct{}), done: make(chan struct{}), wake: make(chan struct{}, 1)}
	go f.run()
	return f
}

func (f *downFeed) push(e PeerDown) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	merged := false
	for i := range f.queue {
		if q := &f.queue[i]; q.Peer == e.Peer && q.Incarnation == e.Incarnation && q.Inbound == e.Inbound {
			*q, merged = e, true
		}
	}
	if !merged {
		if len(f.queue) >= maxPeerDowns {
			f.queue = f.queue[1:]
		}
		f.queue = append(f.queue, e)
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *downFeed) run() {
	defer close(f.done)
	for {
		f.mu.Lock()
		if len(f.queue) == 0 {
			f.mu.Unlock()
			select {
			case <-f.wake:
				continue
			case <-f.stop:
				return
			}
		}
		e := f.queue[0]
		f.queue = f.queue[1:]
		f.mu.Unlock()
		select {
		case f.out <- e:
		case <-f.stop:
			return
		}
	}
}

func (f *downFeed) close() {
	f.mu.Lock()
	first := !f.closed
	f.closed = true
	f.mu.Unlock()
	if first {
		close(f.stop)
	}
	<-f.done
}
