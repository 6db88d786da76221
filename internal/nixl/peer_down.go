package nixl

import (
	"context"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/ondemand"
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
	out     chan PeerDown
	sending *ondemand.Task

	mu    sync.Mutex
	queue []PeerDown
}

func newDownFeed() *downFeed {
	f := &downFeed{out: make(chan PeerDown)}
	f.sending = ondemand.New(context.Background(), f.send)
	return f
}

func (f *downFeed) push(e PeerDown) {
	f.mu.Lock()
	defer f.mu.Unlock()
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
	f.sending.Wake()
}

// send hands out what waits.
func (f *downFeed) send(ctx context.Context) {
	for {
		f.mu.Lock()
		if len(f.queue) == 0 {
			f.mu.Unlock()
			return
		}
		e := f.queue[0]
		f.queue = f.queue[1:]
		f.mu.Unlock()
		select {
		case f.out <- e:
		case <-ctx.Done():
			return
		}
	}
}

func (f *downFeed) close() { f.sending.Close() }
