//go:build linux

package fenced

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/nixl"
)

// mappings are the regions of a peer that an initiator has taken. Its owner's lock
// guards them.
type mappings map[uint64]*mapping // by the region's address

// mapping is one of them. It is let go of when it is neither listed nor used.
type mapping struct {
	base nixl.Desc
	mem  Memory
	gave func() // tells the target that mem is closed
	uses int    // running copies
	dead bool
}

// piece is a piece of the peer's memory.
type piece struct {
	mem Memory
	at  uint64 // offset in it
}

// fits reports why a region cannot stand beside those that were taken before.
func (ms mappings) fits(base nixl.Desc) error {
	for _, m := range ms {
		if base.Addr < m.base.End() && m.base.Addr < base.End() {
			return fmt.Errorf("region %s overlaps %s: %w", base, m.base, errProtocol)
		}
	}
	return nil
}

// use returns the memory of the descriptors, and the mappings to be released. ok is
// false if the peer has not handed over one of them.
func (ms mappings) use(descs []nixl.Desc) (pieces []piece, used []*mapping, ok bool) {
	pieces = make([]piece, 0, len(descs))
	var last *mapping
	for _, d := range descs {
		if last == nil || !last.base.Covers(d) {
			if last = ms.find(d); last == nil {
				ms.release(used)
				return nil, nil, false
			}
			last.uses++
			used = append(used, last)
		}
		pieces = append(pieces, piece{last.mem, d.Addr - last.base.Addr})
	}
	return pieces, used, true
}

func (ms mappings) find(d nixl.Desc) *mapping {
	for _, m := range ms {
		if m.base.Covers(d) {
			return m
		}
	}
	return nil
}

func (ms mappings) release(used []*mapping) {
	for _, m := range used {
		if m.uses--; m.uses == 0 && m.dead {
			m.unmap()
		}
	}
}

// forget lets go of a region that its owner has deregistered.
func (ms mappings) forget(addr uint64) {
	m := ms[addr]
	if m == nil {
		return
	}
	delete(ms, addr)
	if m.dead = true; m.uses == 0 {
		m.unmap()
	}
}

func (m *mapping) unmap() {
	m.mem.Close()
	m.mem = nil
	m.gave()
}

// clear forgets all of them.
func (ms mappings) clear() {
	for addr := range ms {
		ms.forget(addr)
	}
}
