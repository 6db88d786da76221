package ucx

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/ucx/ucp"
)

// region is registered memory that the devices know.
type region struct {
	base nixl.Desc
	addr uint64 // in this process
	mem  *ucp.Memory
}

func (r *region) holds(mem []byte) bool {
	addr := addressOf(mem)
	return addr >= r.addr && addr+uint64(len(mem)) <= r.addr+r.base.Len
}

// regions are all of an agent's. Its methods may be called at the same time.
type regions struct {
	ctx *ucp.Context

	mu     sync.Mutex
	byBase []*region // by the address of descriptors
	byAddr []*region // by the address in the process
	closed bool
}

func addressOf(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }

func (rs *regions) add(base nixl.Desc, mem []byte) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.closed {
		return fmt.Errorf("transport is closed: %w", nixl.ErrCanceled)
	}
	m, err := rs.ctx.Map(mem)
	if err != nil {
		return fmt.Errorf("%w; RDMA devices need a high limit of locked memory (ulimit -l): %w", err, nixl.ErrBackend)
	}
	if len(m.Key()) > maxKeyBytes {
		m.Close()
		return fmt.Errorf("remote key of %d bytes: %w", len(m.Key()), nixl.ErrBackend)
	}
	r := &region{base: base, addr: addressOf(mem), mem: m}
	i, _ := slices.BinarySearchFunc(rs.byBase, base.Addr, byBase)
	rs.byBase = slices.Insert(rs.byBase, i, r)
	i, _ = slices.BinarySearchFunc(rs.byAddr, r.addr, byAddr)
	rs.byAddr = slices.Insert(rs.byAddr, i, r)
	return nil
}

func byBase(r *region, addr uint64) int { return cmp.Compare(r.base.Addr, addr) }
func byAddr(r *region, addr uint64) int { return cmp.Compare(r.addr, addr) }

func (rs *regions) remove(base nixl.Desc) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	i, found := slices.BinarySearchFunc(rs.byBase, base.Addr, byBase)
	if !found {
		return
	}
	r := rs.byBase[i]
	rs.byBase = slices.Delete(rs.byBase, i, i+1)
	rs.byAddr = slices.DeleteFunc(rs.byAddr, func(o *region) bool { return o == r })
	r.mem.Close()
}

// covering returns the region of a descriptor, or nil.
func (rs *regions) covering(d nixl.Desc) *region {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	i, found := slices.BinarySearchFunc(rs.byBase, d.Addr, byBase)
	if !found {
		i--
	}
	if i < 0 || !rs.byBase[i].base.Covers(d) {
		return nil
	}
	return rs.byBase[i]
}

// holding returns a region that a piece of this process's memory lies in, or nil. The
// same memory may have been registered twice.
func (rs *regions) holding(mem []byte) *region {
	addr := addressOf(mem)
	rs.mu.Lock()
	defer rs.mu.Unlock()
	i, _ := slices.BinarySearchFunc(rs.byAddr, addr+1, byAddr)
	for i--; i >= 0; i-- {
		if r := rs.byAddr[i]; r.holds(mem) {
			return r
		}
	}
	return nil
}

// clear unmaps what is left.
func (rs *regions) clear() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.byBase {
		r.mem.Close()
	}
	rs.byBase, rs.byAddr, rs.closed = nil, nil, true
}
