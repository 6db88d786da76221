package nixl

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// Memory is what can be registered: memory that stays at its address until the
// region is deregistered. engine.KVMemory and [Arena] satisfy it.
type Memory interface {
	// Bytes returns the memory, or nil when the host cannot address it.
	Bytes() []byte
}

// SharedMemory is Memory that other processes of the machine can map, if SharedFD
// says so: the file's first bytes are those of Bytes, and its size is sealed. The
// descriptor must stay open until the region is deregistered.
type SharedMemory interface {
	Memory
	SharedFD() (fd int, ok bool)
}

// Share is registered memory as a transport hands it to another process.
type Share struct {
	Base Desc // the whole region
	FD   int  // Base.Len bytes from offset 0 on
}

// Region is registered memory of one agent.
type Region struct {
	owner   *regions
	label   string
	typ     MemType
	base    Desc // all of it
	mem     []byte
	private bool   // scratch of a self-test: not in the metadata
	arena   *Arena // when the memory is one: it must not be closed while registered
	fd      int    // of shared memory; -1 if other processes cannot map it

	uses int // tickets and running transfers; guarded by owner.mu
}

// Desc returns the descriptor of n bytes at off. A range outside of the region
// makes a descriptor that every use refuses.
func (r *Region) Desc(off, n uint64) Desc { return subDesc(r.base, off, n) }

// Len is the size of the region in bytes.
func (r *Region) Len() uint64 { return r.base.Len }

// Label is the name peers find the region by.
func (r *Region) Label() string { return r.label }

// Deregister forgets the region. It returns ErrNotAllowed while a ticket or a
// running transfer uses it; after it has returned nil the memory may be freed.
// Deregistering twice is not an error.
func (r *Region) Deregister() error {
	removed, err := r.owner.remove(r)
	if removed && r.owner.gone != nil {
		r.owner.gone(r.base)
	}
	return err
}

func subDesc(base Desc, off, n uint64) Desc {
	if off > base.Len || n > base.Len-off {
		return Desc{}
	}
	return Desc{Addr: base.Addr + off, Len: n, DevID: base.DevID}
}

// regionGap separates neighbors, so that a descriptor never spans two regions
// and merged descriptors stay inside of one.
const regionGap = 1 << 20

// regions is the table of an agent's registered memory.
type regions struct {
	mu    sync.RWMutex
	next  uint64    // address of the next region; grows only, so that none is used twice
	list  []*Region // by address
	limit int
	bytes uint64
	gone  func(base Desc) // told of every region that was deregistered; no lock is held
}

func (rs *regions) add(mem Memory, typ MemType, o registerOptions) (*Region, error) {
	b, label := mem.Bytes(), o.label
	switch {
	case typ != DRAM:
		return nil, fmt.Errorf("register %q: %s memory: %w", label, typ, ErrNotSupported)
	case len(b) == 0:
		return nil, fmt.Errorf("register %q: memory the host cannot address: %w", label, ErrNotSupported)
	case len(label) > maxNameLen:
		return nil, fmt.Errorf("register: label of %d bytes, at most %d: %w", len(label), maxNameLen, ErrInvalidParam)
	}
	r := &Region{owner: rs, label: label, typ: typ, mem: b, private: o.private, fd: -1}
	if sm, ok := mem.(SharedMemory); ok {
		if fd, ok := sm.SharedFD(); ok {
			r.fd = fd
		}
	}
	if ar, ok := mem.(*Arena); ok {
		if !ar.retain() {
			return nil, fmt.Errorf("register %q: arena is closed: %w", label, ErrInvalidParam)
		}
		r.arena = ar
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.list) >= rs.limit {
		r.releaseArena()
		return nil, fmt.Errorf("register %q: %d regions already: %w", label, rs.limit, ErrBackend)
	}
	r.base = Desc{Addr: rs.next, Len: uint64(len(b))}
	rs.next += (uint64(len(b))+4095)&^4095 + regionGap
	rs.list = append(rs.list, r)
	rs.bytes += r.base.Len
	return r, nil
}

func (r *Region) releaseArena() {
	if r.arena != nil {
		r.arena.release()
		r.arena = nil
	}
}

func (rs *regions) remove(r *Region) (removed bool, err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	i := slices.Index(rs.list, r)
	if i < 0 {
		return false, nil
	}
	if r.uses > 0 {
		return false, fmt.Errorf("deregister %q: in use by %d tickets or transfers: %w", r.label, r.uses, ErrNotAllowed)
	}
	rs.list = slices.Delete(rs.list, i, i+1)
	rs.bytes -= r.base.Len
	r.releaseArena()
	return true, nil
}

// share returns the file of the region that covers d.
func (rs *regions) share(d Desc) (Share, error) {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	switch r := rs.findLocked(d); {
	case r == nil:
		return Share{}, fmt.Errorf("share %s: %w", d, ErrNotFound)
	case r.fd < 0:
		return Share{}, fmt.Errorf("share %s: region %q is private to its process: %w", d, r.label, ErrNotSupported)
	default:
		return Share{Base: r.base, FD: r.fd}, nil
	}
}

// findLocked returns the region that covers d, or nil.
func (rs *regions) findLocked(d Desc) *Region {
	i, found := slices.BinarySearchFunc(rs.list, d.Addr, func(r *Region, addr uint64) int {
		return cmp.Compare(r.base.Addr, addr)
	})
	if !found {
		i--
	}
	if i < 0 || !rs.list[i].base.Covers(d) {
		return nil
	}
	return rs.list[i]
}

// check reports the first descriptor that no region covers.
func (rs *regions) check(descs []Desc) error {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	for i, d := range descs {
		if rs.findLocked(d) == nil {
			return fmt.Errorf("local descriptor %d (%s): %w", i, d, ErrNotFound)
		}
	}
	return nil
}

// use returns the memory of the descriptors and keeps their regions registered
// until done is called.
func (rs *regions) use(descs []Desc) (segs [][]byte, done func(), err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	segs = make([][]byte, 0, len(descs))
	var used []*Region
	for i, d := range descs {
		r := rs.findLocked(d)
		if r == nil {
			for _, u := range used {
				u.uses--
			}
			return nil, nil, fmt.Errorf("local descriptor %d (%s): %w", i, d, ErrNotFound)
		}
		off := d.Addr - r.base.Addr
		segs = append(segs, r.mem[off:off+d.Len:off+d.Len])
		if len(used) == 0 || used[len(used)-1] != r {
			r.uses++
			used = append(used, r)
		}
	}
	return segs, func() {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		for _, u := range used {
			u.uses--
		}
	}, nil
}

// public lists the regions peers may know.
func (rs *regions) public() []RemoteRegion {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	out := make([]RemoteRegion, 0, len(rs.list))
	for _, r := range rs.list {
		if r.private {
			continue
		}
		out = append(out, RemoteRegion{Label: r.label, Type: r.typ, Base: r.base, Shared: r.fd >= 0})
	}
	return out
}

// clear forgets everything when the agent closes.
func (rs *regions) clear() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.list {
		r.releaseArena()
	}
	rs.list, rs.bytes = nil, 0
}

func (rs *regions) count() (n int, bytes uint64) {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	return len(rs.list), rs.bytes
}
