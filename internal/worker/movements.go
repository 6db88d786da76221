package worker

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
	open map[*movement]struct{}
}

// movement is one of them. Whoever begins it ends it.
type movement struct {
	of    *movements
	id    uint64 // in the order in which they began
	began time.Time
	t     cluster.Transfer // guarded by movements.mu
}

// begin adds a transfer. Bytes, transport and age are worked out when it is listed.
func (ms *movements) begin(t cluster.Transfer) *movement {
	m := &movement{of: ms, began: time.Now(), t: t}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.open == nil {
		ms.open = map[*movement]struct{}{}
	}
	ms.next++
	m.id = ms.next
	ms.open[m] = struct{}{}
	return m
}

func (m *movement) end() {
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	delete(m.of.open, m)
}

// active says that somebody works on it, and who if that is known.
func (m *movement) active(peer string) {
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	m.t.State, m.t.Peer = cluster.TransferActive, cmp.Or(peer, m.t.Peer)
}

// become says who moves the blocks in the next attempt.
func (m *movement) become(kind cluster.TransferKind) {
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	m.t.Kind, m.t.State, m.t.Peer = kind, cluster.TransferWaits, ""
}

// reach says how many of its blocks were moved.
func (m *movement) reach(done int) {
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	m.t.BlocksDone, m.t.Blocks = &done, max(m.t.Blocks, done)
}

// list returns the n oldest and how many there are.
func (ms *movements) list(n int, blockBytes int64) (oldest []cluster.Transfer, total int) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	all := make([]*movement, 0, len(ms.open))
	for m := range ms.open {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *movement) int { return cmp.Compare(a.id, b.id) })
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
