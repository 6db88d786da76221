package decode

import (
	"sync"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker/kv"
)

// waiters are the remote prefills that this decode worker waits for, by ticket.
type waiters struct {
	mu       sync.Mutex
	byTicket map[string]*waiter
}

type waiter struct {
	notices chan protocol.PrefillNotice // capacity 4: started, done or failed, and a retry
	lost    chan error                  // capacity 1: nobody will finish it any more
	peer    string                      // NIXL agent that has started; guarded by waiters.mu
	move    *kv.Movement
}

func newWaiters() *waiters { return &waiters{byTicket: map[string]*waiter{}} }

func (ws *waiters) add(ticket string, move *kv.Movement) *waiter {
	wt := &waiter{move: move, notices: make(chan protocol.PrefillNotice, 4), lost: make(chan error, 1)}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.byTicket[ticket] = wt
	return wt
}

func (ws *waiters) remove(ticket string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.byTicket, ticket)
}

// deliver hands a notice to whoever waits for it; late ones are dropped.
func (ws *waiters) deliver(from string, n protocol.PrefillNotice) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	wt := ws.byTicket[n.Ticket]
	if wt == nil {
		return
	}
	if n.Phase == protocol.PrefillStarted {
		wt.peer = from
		wt.move.Active(kv.WorkerOf(from))
	}
	select {
	case wt.notices <- n:
	default:
	}
}

// fail tells the waiters whose prefill is under way at peer, or all of them if peer
// is empty, that nobody will finish it.
func (ws *waiters) fail(peer string, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, wt := range ws.byTicket {
		if peer == "" || wt.peer == peer {
			select {
			case wt.lost <- err:
			default:
			}
		}
	}
}
