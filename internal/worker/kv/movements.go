package kv

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// movements are the KV transfers of a worker that are not over, for operators who ask.
// Nothing else looks at them.
type movements struct {
	mu   sync.Mutex
	next uint64
	open map[*Movement]struct{}
}

// Movement is a KV transfer that operators see. Whoever begins it ends it.
type Movement struct {
	of    *movements
	id    uint64 // in the order in which they began
	began time.Time
	t     cluster.Transfer // guarded by movements.mu
}

// Begin adds a transfer to those that operators see. Bytes, transport and age are worked
// out when it is listed.
func (p *Plane) Begin(t cluster.Transfer) *Movement { return p.moves.begin(t) }

// Movements returns the n oldest transfers that are not over, and how many there are.
func (p *Plane) Movements(n int) (oldest []cluster.Transfer, total int) {
	oldest, total = p.moves.list(n, p.BlockBytes())
	if len(oldest) == 0 {
		return nil, total
	}
	transports := map[string]string{}
	for _, peer := range p.agent.Peers() {
		if peer.Transport != "" {
			transports[WorkerOf(peer.Name)] = peer.Transport
		}
	}
	for i := range oldest {
		oldest[i].Transport = transports[oldest[i].Peer]
	}
	return oldest, total
}

func (ms *movements) begin(t cluster.Transfer) *Movement {
	m := &Movement{of: ms, began: time.Now(), t: t}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.open == nil {
		ms.open = map[*Movement]struct{}{}
	}
	ms.next++
	m.id = ms.next
	ms.open[m] = struct{}{}
	return m
}

// End takes the transfer out of those that operators see.
func (m *Movement) End() {
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	delete(m.of.open, m)
}

// Active says that somebody works on it, and who if that is known.
func (m *Movement) Active(peer string) {
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	m.t.State, m.t.Peer = cluster.TransferActive, cmp.Or(peer, m.t.Peer)
}

// Become says who moves the blocks in the next attempt.
func (m *Movement) Become(kind cluster.TransferKind) {
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	m.t.Kind, m.t.State, m.t.Peer = kind, cluster.TransferWaits, ""
}

// Reach says how many of its blocks were moved.
func (m *Movement) Reach(done int) {
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	m.t.BlocksDone, m.t.Blocks = &done, max(m.t.Blocks, done)
}

// list returns the n oldest and how many there are.
func (ms *movements) list(n int, blockBytes int64) (oldest []cluster.Transfer, total int) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	all := make([]*Movement, 0, len(ms.open))
	for m := range ms.open {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *Movement) int { return cmp.Compare(a.id, b.id) })
	for _, m := range all[:min(n, len(all))] {
		t := m.t
		t.AgeMS, t.Bytes = time.Since(m.began).Milliseconds(), int64(t.Blocks)*blockBytes
		if t.BlocksDone != nil {
			bytes := int64(*t.BlocksDone) * blockBytes
			t.BytesDone = &bytes
		}
		oldest = append(oldest, t)
	}
	return oldest, len(all)
}
