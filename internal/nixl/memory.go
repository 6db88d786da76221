package nixl

import (
	"fmt"
	"io"
)

// Memory can be registered: it stays at its address until the
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

// DeviceMemory is memory of a device, registered as [VRAM], that the host cannot
// address: Bytes returns nil. Transports see host memory in its place; the agent
// copies between the two. ReadAt and WriteAt follow io.ReaderAt and io.WriterAt,
// return when the bytes have arrived, and are called for ranges inside of the memory
// only, by several goroutines at the same time. A [DeviceTransport] reaches memory of the
// kind it knows without such copies.
type DeviceMemory interface {
	Memory
	io.ReaderAt
	io.WriterAt
	Size() int64 // bytes
	Device() int // index of the device on its machine, from 0 on
}

// DeviceCopier is memory of a device that takes bytes of other memory of its kind without
// host memory in between. Agents of one process exchange it that way.
type DeviceCopier interface {
	DeviceMemory
	// CopyFrom copies n bytes of src at srcOff to off, and returns when they have arrived.
	// src may be on another device. Memory of another kind is ErrNotSupported.
	CopyFrom(off uint64, src DeviceMemory, srcOff, n uint64) error
}

// DevicePiece is a piece of device memory of this agent.
type DevicePiece struct {
	Memory DeviceMemory // nil where the memory is the host's
	Off    uint64       // in it
	Len    uint64
}

// Share is registered memory as a transport lets another process touch it.
type Share struct {
	Base  Desc   // the whole region
	Label string // of the region
	FD    int    // holds Base.Len bytes from offset 0 on; -1 if others cannot map the memory
	Addr  uint64 // of the first byte, in this process; 0 for memory of a device
	// Device is the memory when it is a device's that a [DeviceTransport] reaches; else nil.
	Device DeviceMemory
}

// segment is a registered piece of memory; one of mem and device is set.
type segment struct {
	typ    MemType
	len    uint64
	devID  uint64
	mem    []byte
	fd     int    // of shared memory; -1 if other processes cannot map it
	arena  *Arena // when mem is one: it must not be closed while registered
	device DeviceMemory
}

// segmentOf checks memory against the type it is registered as.
func segmentOf(mem Memory, typ MemType) (segment, error) {
	s := segment{typ: typ, fd: -1}
	switch typ {
	case DRAM:
		if mem == nil || len(mem.Bytes()) == 0 {
			return s, fmt.Errorf("memory the host cannot address: %w", ErrNotSupported)
		}
		s.mem, s.len = mem.Bytes(), uint64(len(mem.Bytes()))
		if sm, ok := mem.(SharedMemory); ok {
			if fd, ok := sm.SharedFD(); ok {
				s.fd = fd
			}
		}
		s.arena, _ = mem.(*Arena)
	case VRAM:
		d, ok := mem.(DeviceMemory)
		switch {
		case !ok:
			return s, fmt.Errorf("%T cannot be copied to and from a device: %w", mem, ErrNotSupported)
		case d.Size() <= 0 || d.Device() < 0:
			return s, fmt.Errorf("%d bytes of device %d: %w", d.Size(), d.Device(), ErrInvalidParam)
		}
		s.device, s.len, s.devID = d, uint64(d.Size()), uint64(d.Device())
	default:
		return s, fmt.Errorf("%s memory: %w", typ, ErrNotSupported)
	}
	return s, nil
}

// retain keeps an arena open; false if it is closed already.
func (s *segment) retain() bool { return s.arena == nil || s.arena.retain() }

func (s *segment) release() {
	if s.arena != nil {
		s.arena.release()
		s.arena = nil
	}
}
