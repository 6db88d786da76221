package nixl

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"unsafe"
)

// Region is registered memory of one agent.
type Region struct {
	segment
	owner   *regions
	label   string
	base    Desc // all of it
	private bool // scratch of the agent: not in the metadata

	uses int // tickets and running transfers; guarded by owner.mu
}

// Registration is one element of a list for [Agent.RegisterAll].
type Registration struct {
	Memory Memory
	Type   MemType
	Label  string // see WithLabel; may be empty
}

// Desc returns the descriptor of n bytes at off. A range outside of the region
// makes a descriptor that every use refuses.
func (r *Region) Desc(off, n uint64) Desc { return subDesc(r.base, off, n) }

// Len is the size of the region in bytes.
func (r *Region) Len() uint64 { return r.base.Len }

// Label is the name peers find the region by.
func (r *Region) Label() string { return r.label }

// Type is the kind of memory.
func (r *Region) Type() MemType { return r.typ }

// Deregister forgets the region. It returns ErrNotAllowed while a ticket or a
// running transfer uses it; after it has returned nil the memory may be freed.
// Deregistering twice is not an error.
func (r *Region) Deregister() error { return r.owner.remove(r) }

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
	own   int // private ones, which do not count against the limit
	bytes uint64
	stage func() error // makes the agent ready for memory of devices
	// Told of regions, with no lock held: after one was added, which an error undoes, and
	// after one was removed.
	added func(base Desc, mem []byte) error
	gone  func(base Desc)
}

func (rs *regions) add(mem Memory, typ MemType, o registerOptions) (*Region, error) {
	seg, err := rs.segment(mem, typ, o.label)
	if err != nil {
		return nil, fmt.Errorf("register %.32q: %w", o.label, err)
	}
	r := &Region{segment: seg, owner: rs, label: o.label, private: o.private}
	if err := rs.insert([]*Region{r}); err != nil {
		return nil, err
	}
	if err := rs.announce([]*Region{r}); err != nil {
		return nil, err
	}
	return r, nil
}

// addAll registers all of a list, or nothing.
func (rs *regions) addAll(list []Registration) ([]*Region, error) {
	out := make([]*Region, len(list))
	for i, e := range list {
		seg, err := rs.segment(e.Memory, e.Type, e.Label)
		if err != nil {
			return nil, fmt.Errorf("register element %d, %.32q: %w", i, e.Label, err)
		}
		out[i] = &Region{segment: seg, owner: rs, label: e.Label}
	}
	if err := rs.insert(out); err != nil {
		return nil, err
	}
	if err := rs.announce(out); err != nil {
		return nil, err
	}
	return out, nil
}

// announce tells of new regions that the host can address. If one is refused, all are
// taken back.
func (rs *regions) announce(add []*Region) error {
	if rs.added == nil {
		return nil
	}
	for _, r := range add {
		if r.mem == nil {
			continue
		}
		if err := rs.added(r.base, r.mem); err != nil {
			errs := []error{fmt.Errorf("register %.32q: %w", r.label, err)}
			for _, o := range add {
				errs = append(errs, o.Deregister())
			}
			return errors.Join(errs...)
		}
	}
	return nil
}

// segment checks what is to be registered.
func (rs *regions) segment(mem Memory, typ MemType, label string) (segment, error) {
	if len(label) > maxNameLen {
		return segment{}, fmt.Errorf("label of %d bytes, at most %d: %w", len(label), maxNameLen, ErrInvalidParam)
	}
	seg, err := segmentOf(mem, typ)
	if err == nil && typ == VRAM {
		err = rs.stage()
	}
	return seg, err
}

// insert gives regions their addresses and takes them into the table: all or none.
func (rs *regions) insert(add []*Region) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	own := 0
	for _, r := range add {
		if r.private {
			own++
		}
	}
	if n := len(rs.list) - rs.own; n+len(add)-own > rs.limit {
		return fmt.Errorf("register %d regions: %d of at most %d are registered: %w", len(add), n, rs.limit, ErrBackend)
	}
	next := rs.next
	for i, r := range add {
		err := rs.placeLocked(r, &next)
		if err != nil {
			for _, done := range add[:i] {
				done.release()
			}
			return fmt.Errorf("register %q: %w", r.label, err)
		}
	}
	rs.next = next
	rs.own += own
	rs.list = append(rs.list, add...)
	for _, r := range add {
		rs.bytes += r.base.Len
	}
	return nil
}

func (rs *regions) placeLocked(r *Region, next *uint64) error {
	room := (r.len+4095)&^4095 + regionGap
	switch {
	case r.len > math.MaxInt64-regionGap-4095 || *next > math.MaxUint64-room:
		return fmt.Errorf("no addresses are left for %d bytes: %w", r.len, ErrBackend)
	case !r.retain():
		return fmt.Errorf("arena is closed: %w", ErrInvalidParam)
	}
	r.base = Desc{Addr: *next, Len: r.len, DevID: r.devID}
	*next += room
	return nil
}

// remove takes a region out of the table, if it is in it.
func (rs *regions) remove(r *Region) error {
	removed, err := rs.removeLocked(r)
	if removed && rs.gone != nil {
		rs.gone(r.base)
	}
	return err
}

func (rs *regions) removeLocked(r *Region) (removed bool, err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	i, found := rs.searchLocked(r.base.Addr)
	switch {
	case !found || rs.list[i] != r:
		return false, nil
	case r.uses > 0:
		return false, fmt.Errorf("deregister %q: in use by %d tickets or transfers: %w", r.label, r.uses, ErrNotAllowed)
	}
	rs.list = slices.Delete(rs.list, i, i+1)
	rs.bytes -= r.base.Len
	if r.private {
		rs.own--
	}
	r.release()
	return true, nil
}

func (rs *regions) searchLocked(addr uint64) (i int, found bool) {
	return slices.BinarySearchFunc(rs.list, addr, func(r *Region, addr uint64) int { return cmp.Compare(r.base.Addr, addr) })
}

// isDirect reports whether the transport reaches memory of a device by itself.
func isDirect(t Transport, m DeviceMemory) bool {
	dt, ok := t.(DeviceTransport)
	return ok && m != nil && dt.Direct(m)
}

// direct reports whether all memory of devices among the descriptors is such as the
// transport reaches.
func (rs *regions) direct(descs []Desc, t Transport) bool {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	for _, d := range descs {
		if r := rs.findLocked(d); r == nil || r.device != nil && !isDirect(t, r.device) {
			return false
		}
	}
	return true
}

// pieces returns the memory of devices among the descriptors, whose regions are in use.
func (rs *regions) pieces(descs []Desc) []DevicePiece {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	out := make([]DevicePiece, len(descs))
	for i, d := range descs {
		if r := rs.findLocked(d); r != nil && r.device != nil {
			out[i] = DevicePiece{Memory: r.device, Off: d.Addr - r.base.Addr, Len: d.Len}
		}
	}
	return out
}

// share returns the region that covers d as another process can touch it over the
// transport.
func (rs *regions) share(d Desc, t Transport) (Share, error) {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	switch r := rs.findLocked(d); {
	case r == nil:
		return Share{}, fmt.Errorf("share %s: %w", d, ErrNotFound)
	case isDirect(t, r.device):
		return Share{Base: r.base, Label: r.label, FD: -1, Device: r.device}, nil
	case len(r.mem) == 0:
		return Share{}, fmt.Errorf("share %s: region %q is not memory of this host: %w", d, r.label, ErrNotSupported)
	default:
		return Share{Base: r.base, Label: r.label, FD: r.fd, Addr: uint64(uintptr(unsafe.Pointer(&r.mem[0])))}, nil
	}
}

// findLocked returns the region that covers d, or nil.
func (rs *regions) findLocked(d Desc) *Region {
	i, found := rs.searchLocked(d.Addr)
	if !found {
		i--
	}
	if i < 0 || !rs.list[i].base.Covers(d) {
		return nil
	}
	return rs.list[i]
}

// find returns the region that covers d and where in it d begins.
func (rs *regions) find(d Desc) (*Region, int64, error) {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	r := rs.findLocked(d)
	if r == nil {
		return nil, 0, fmt.Errorf("descriptor %s: %w", d, ErrNotFound)
	}
	return r, int64(d.Addr - r.base.Addr), nil
}

// check reports the first descriptor that no region covers.
func (rs *regions) check(descs []Desc) error {
	_, err := rs.nameDevices(descs)
	return err
}

// nameDevices reports whether any of the descriptors is memory of a device.
func (rs *regions) nameDevices(descs []Desc) (devices bool, err error) {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	for i, d := range descs {
		r := rs.findLocked(d)
		if r == nil {
			return false, fmt.Errorf("local descriptor %d (%s): %w", i, d, ErrNotFound)
		}
		devices = devices || r.typ == VRAM
	}
	return devices, nil
}

// use returns the memory of the descriptors, nil where the host cannot address it,
// and keeps their regions registered until done is called.
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
		segs = append(segs, r.host(d))
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

// host is the memory of a descriptor of the region, nil if the host cannot address it.
func (r *Region) host(d Desc) []byte {
	if r.mem == nil {
		return nil
	}
	off := d.Addr - r.base.Addr
	return r.mem[off : off+d.Len : off+d.Len]
}

// public lists the regions that peers may know.
func (rs *regions) public(ts []DeviceTransport) []RemoteRegion {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	out := make([]RemoteRegion, 0, len(rs.list))
	for _, r := range rs.list {
		if !r.private {
			out = append(out, r.remote(ts))
		}
	}
	return out
}

// remote is the region as peers see it.
func (r *Region) remote(ts []DeviceTransport) RemoteRegion {
	direct := len(ts) > 0
	for _, t := range ts {
		direct = direct && isDirect(t, r.device)
	}
	return RemoteRegion{Label: r.label, Type: r.typ, Base: r.base, Shared: r.fd >= 0, Direct: direct}
}

// clear forgets everything when the agent closes.
func (rs *regions) clear() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.list {
		r.release()
	}
	rs.list, rs.own, rs.bytes = nil, 0, 0
}

func (rs *regions) count() (n int, bytes uint64) {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	return len(rs.list), rs.bytes
}
