package nixl

import (
	"errors"
	"fmt"
	"sync"
)

// StagingChunk limits the device memory that one access may name, in bytes: peers
// send and fetch that much at a time through host memory.
const StagingChunk = 4 << 20

// staging is host memory that stands in for memory of devices while it travels, in
// slots of StagingChunk. It is one private region, so that transports hand it over and
// address it like any other. It is allocated when the first device's memory is registered;
// its pages take room when they are first used.
type staging struct {
	bytes   int64
	regions *regions

	mu     sync.Mutex
	arena  *Arena
	region *Region
	free   chan int // slots nobody uses; nil before open
}

// open allocates the slots, once.
func (s *staging) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free != nil {
		return nil
	}
	slots := max(2, int(s.bytes/StagingChunk))
	ar, err := NewArena(int64(slots) * StagingChunk)
	if err != nil {
		return err
	}
	r, err := s.regions.add(ar, DRAM, registerOptions{label: "staging", private: true})
	if err != nil {
		return errors.Join(err, ar.Close())
	}
	s.arena, s.region, s.free = ar, r, make(chan int, slots)
	for i := range slots {
		s.free <- i
	}
	return nil
}

// slots returns the queue of free ones; nil, which blocks for ever, before open.
func (s *staging) slots() chan int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free
}

// shareable reports whether other processes can map the slots.
func (s *staging) shareable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.region != nil && s.region.fd >= 0
}

// desc is n bytes at off of a slot, as a transport names them.
func (s *staging) desc(slot int, off, n uint64) Desc {
	return s.region.Desc(uint64(slot)*StagingChunk+off, n)
}

// close frees the slots unless another process still accesses one.
func (s *staging) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.region == nil || len(s.free) < cap(s.free) {
		return
	}
	if s.region.Deregister() == nil {
		_ = s.arena.Close()
	}
}

// staged is a slot in use: the pieces of device memory it stands in for.
type staged struct {
	pool   *staging
	slot   int
	pieces []stagedPiece
}

type stagedPiece struct {
	device DeviceMemory
	off    int64
	host   []byte
}

// errNoSlots tells a peer what to do about it.
var errNoSlots = fmt.Errorf("all staging memory for devices is in use (see Limits.StagingBytes): %w", ErrBackend)

// place lets a slot stand in for those descriptors whose segment is nil: it fills in
// the segments and returns the descriptors of the memory in use.
func (s *staging) place(slot int, descs []Desc, segs [][]byte) (*staged, []Desc, error) {
	st := &staged{pool: s, slot: slot}
	where := append([]Desc(nil), descs...)
	used := uint64(0)
	for i, d := range descs {
		if segs[i] != nil {
			continue
		}
		r, off, err := s.regions.find(d)
		switch {
		case err != nil:
			return nil, nil, err
		case r.device == nil:
			return nil, nil, fmt.Errorf("descriptor %d (%s) is %s memory, which does not travel: %w", i, d, r.typ, ErrNotSupported)
		case d.Len > StagingChunk-used:
			return nil, nil, fmt.Errorf("more than %d bytes of device memory at a time: %w", StagingChunk, ErrInvalidParam)
		}
		where[i] = s.desc(slot, used, d.Len)
		segs[i] = s.region.host(where[i])
		st.pieces = append(st.pieces, stagedPiece{r.device, off, segs[i]})
		used += d.Len
	}
	return st, where, nil
}

// load copies from the devices into the slot, store from the slot to the devices.
func (s *staged) load() error {
	for _, p := range s.pieces {
		if n, err := p.device.ReadAt(p.host, p.off); n < len(p.host) {
			return fmt.Errorf("copy %d bytes from device %d: %w: %w", len(p.host), p.device.Device(), err, ErrBackend)
		}
	}
	return nil
}

func (s *staged) store() error {
	for _, p := range s.pieces {
		if n, err := p.device.WriteAt(p.host, p.off); n < len(p.host) || err != nil {
			return fmt.Errorf("copy %d bytes to device %d: %w: %w", len(p.host), p.device.Device(), err, ErrBackend)
		}
	}
	return nil
}

// release gives the slot back. Nobody touches it any more.
func (s *staged) release() { s.pool.free <- s.slot }
