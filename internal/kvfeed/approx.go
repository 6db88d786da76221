package kvfeed

import (
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kvindex"
)

// Approx fills an index without KV events: it assumes that a worker has the blocks of the
// prompts that were sent to it, for a time. Its methods are safe for concurrent use.
type Approx struct {
	index *kvindex.Index
	ttl   time.Duration
	most  int

	mu      sync.Mutex
	entries map[assumedBlock]*assumption
	first   *assumption // expires first
	last    *assumption
}

type assumedBlock struct {
	worker cluster.InstanceID
	hash   uint64
}

type assumption struct {
	assumedBlock
	until      time.Time
	prev, next *assumption
}

// Defaults of an approximate index, as in Dynamo. Beyond the bound, the oldest fifth goes.
const (
	DefaultTTL  = 120 * time.Second
	DefaultMost = 1 << 20
)

// NewApprox returns an empty Approx over an index. Blocks expire after ttl; most bounds
// the pairs of a block and a worker.
func NewApprox(index *kvindex.Index, ttl time.Duration, most int) *Approx {
	return &Approx{index: index, ttl: ttl, most: most, entries: map[assumedBlock]*assumption{}}
}

// Routed notes that a prompt with these blocks was sent to a worker. The time of blocks
// that it has begins anew.
func (a *Approx) Routed(worker cluster.InstanceID, hashes []uint64, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire(now)
	for i := len(hashes) - 1; i >= 0; i-- { // the end of a prompt goes before its beginning
		key := assumedBlock{worker, hashes[i]}
		e := a.entries[key]
		if e == nil {
			e = &assumption{assumedBlock: key}
			a.entries[key] = e
		} else {
			a.unlink(e)
		}
		e.until = now.Add(a.ttl)
		a.link(e)
	}
	a.index.Store(worker, kvindex.Device, hashes)
	if len(a.entries) > a.most {
		for len(a.entries) > a.most*4/5 {
			a.forget(a.first)
		}
	}
}

// Expire forgets blocks whose time is over.
func (a *Approx) Expire(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire(now)
}

func (a *Approx) expire(now time.Time) {
	for a.first != nil && !a.first.until.After(now) {
		a.forget(a.first)
	}
}

// Drop forgets a worker that has left, with its times.
func (a *Approx) Drop(worker cluster.InstanceID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.index.Snapshot(worker, kvindex.Device) {
		key := assumedBlock{worker, h}
		if e := a.entries[key]; e != nil {
			a.unlink(e)
			delete(a.entries, key)
		}
	}
	a.index.Drop(worker)
}

func (a *Approx) forget(e *assumption) {
	a.unlink(e)
	delete(a.entries, e.assumedBlock)
	a.index.Remove(e.worker, kvindex.Device, []uint64{e.hash})
}

func (a *Approx) link(e *assumption) {
	e.prev, e.next = a.last, nil
	if a.last == nil {
		a.first = e
	} else {
		a.last.next = e
	}
	a.last = e
}

func (a *Approx) unlink(e *assumption) {
	if e.prev == nil {
		a.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		a.last = e.prev
	} else {
		e.next.prev = e.prev
	}
}
