package engine

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/protocol"
)

// lavish bounds unfairness: a tenant that holds more than lavish times as much as another
// one loses places to it. The other tenant takes such a place at once instead of waiting
// until sequences of others end. Without the factor, tenants with about equal shares
// would preempt each other in turns, each time losing the KV that was computed.
const lavish = 2

// holding counts the sequences and blocks that a tenant has in the batch, or soon will.
type holding struct {
	seqs, blocks int
	last         int // index of its newest preemptible sequence in running, -1 if there is none
}

// countRemote counts a sequence that enters or leaves seqRemote.
func (e *Engine) countRemote(s *sequence, d int) {
	e.remote += d
	e.countAway(s, d)
}

// countAway counts a sequence that holds a place and waits for something from elsewhere.
func (e *Engine) countAway(s *sequence, d int) {
	if e.away[s.tenant] += d; e.away[s.tenant] == 0 {
		delete(e.away, s.tenant)
	}
}

// displaceRunning preempts sequences of tenants that hold much, until there is room for
// s. s lacks the given slots and blocks, and will have need blocks. If preemption cannot
// make enough room, it preempts nothing and returns false. Cached blocks count like
// computed ones on both sides. Otherwise two tenants with cached blocks would preempt
// each other without end.
func (e *Engine) displaceRunning(s *sequence, need, slots, blocks int) bool {
	held := e.holdings()
	mine := held[s.tenant]
	if mine == nil {
		mine = &holding{}
	}
	var victims []*sequence
	for slots > 0 || blocks > 0 {
		var most *holding
		for tenant, h := range held {
			much := slots > 0 && h.seqs > lavish*(mine.seqs+1) || slots <= 0 && h.blocks > lavish*(mine.blocks+need)
			if tenant == s.tenant || h.last < 0 || !much {
				continue
			}
			if most == nil || h.exceeds(most, slots > 0) {
				most = h
			}
		}
		if most == nil {
			return false
		}
		victim := e.running[most.last]
		victims = append(victims, victim)
		most.seqs--
		most.blocks -= len(victim.blocks)
		slots--
		blocks -= e.pool.exclusive(victim.blocks)
		most.last = e.preemptibleBefore(most.last, victim.tenant)
	}
	for _, victim := range victims {
		e.preempt(victim)
	}
	return true
}

// exceeds reports whether h has more sequences, or blocks, than o, or as many and a newer
// one.
func (h *holding) exceeds(o *holding, seqs bool) bool {
	d := h.blocks - o.blocks
	if seqs {
		d = h.seqs - o.seqs
	}
	return d > 0 || d == 0 && h.last > o.last
}

// holdings adds up what each tenant has.
func (e *Engine) holdings() map[string]*holding {
	held := map[string]*holding{}
	of := func(tenant string) *holding {
		h := held[tenant]
		if h == nil {
			h = &holding{last: -1}
			held[tenant] = h
		}
		return h
	}
	for i, s := range e.running {
		h := of(s.tenant)
		h.seqs++
		h.blocks += len(s.blocks)
		if s.displaceable() {
			h.last = i
		}
	}
	for tenant, n := range e.away {
		of(tenant).seqs += n
	}
	return held
}

// displaceable reports whether a running sequence may lose its place to another tenant.
// Sequences that are being exported leave anyway.
func (s *sequence) displaceable() bool { return s.gen != nil && s.export == nil }

func (e *Engine) preemptibleBefore(i int, tenant string) int {
	for i--; i >= 0; i-- {
		if s := e.running[i]; s.tenant == tenant && s.displaceable() {
			return i
		}
	}
	return -1
}

// displace makes room in the full queue for a sequence of a tenant that has fewer waiting
// than another tenant. The newest waiting sequence of that other tenant is refused.
func (e *Engine) displace(s *sequence) bool {
	newest, most := e.waiting.Longest()
	if mine, _ := e.waiting.Of(s.tenant); newest == nil || mine+1 >= most {
		return false
	}
	e.count.RejectedTotal++
	e.cancel(newest.Item, protocol.FinishError, fmt.Errorf("%w: %d requests of one client wait, of %d", ErrQueueFull, most, e.waiting.Len()))
	return true
}
