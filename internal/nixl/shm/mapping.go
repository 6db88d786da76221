//go:build linux

package shm

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/nixl"
)

// mappings are the regions of a peer that an initiator has mapped. Its owner's
// lock guards them.
type mappings map[uint64]*mapping // by the region's address

// mapping is one of them. It is unmapped when it is neither listed nor used.
type mapping struct {
	base nixl.Desc
	mem  []byte
	uses int // running copies
	dead bool
}

// add maps the memory behind a descriptor that came from the peer. The descriptor
// stays the caller's.
func (ms mappings) add(base nixl.Desc, fd int) error {
	for _, m := range ms {
		if base.Addr < m.base.End() && m.base.Addr < base.End() {
			return fmt.Errorf("region %s overlaps %s: %w", base, m.base, errProtocol)
		}
	}
	if !base.Covers(base) {
		return fmt.Errorf("region %s: %w", base, errProtocol)
	}
	mem, err := mapShared(fd, base.Len)
	if err != nil {
		return fmt.Errorf("region %s: %w", base, err)
	}
	ms[base.Addr] = &mapping{base: base, mem: mem}
	return nil
}

// use returns the memory of the descriptors, and the mappings to be released. ok is
// false if the peer has not handed over one of them.
func (ms mappings) use(descs []nixl.Desc) (segs [][]byte, used []*mapping, ok bool) {
	segs = make([][]byte, 0, len(descs))
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
		off := d.Addr - last.base.Addr
		segs = append(segs, last.mem[off:off+d.Len:off+d.Len])
	}
	return segs, used, true
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
	_ = unix.Munmap(m.mem)
	m.mem = nil
}

// clear forgets all of them.
func (ms mappings) clear() {
	for addr := range ms {
		ms.forget(addr)
	}
}
