//go:build linux

package fenced

import "github.com/dynctl/dynctl/internal/nixl"

// Method gives an initiator access to memory of another process of its host. One
// Method serves one transport: at the target it hands regions over, at the initiator
// it takes them. Sessions, tickets and fences are the same for all.
//
// Methods of a Method may be called at the same time.
type Method interface {
	// Name is the transport's name.
	Name() string
	// Offer prepares this process, once, and returns what travels in the metadata; an
	// error says why this system does not allow it.
	Offer() ([]byte, error)
	// Reach reports how memory of a peer that made this offer is touched, or why it
	// cannot be, as nixl.Transport does. It looks and does not wait.
	Reach(r nixl.Remote, offer []byte) (reason string, err error)
	// Hand returns what a peer needs for a region of this process.
	Hand(s nixl.Share) (Handed, error)
	// Take makes a region of the peer usable. fd, if not 0, is the caller's; note is what
	// Handed said, from a process that may lie.
	Take(o Owner, base nixl.Desc, addr uint64, fd int, note []byte) (Memory, error)
}

// DeviceMethod is a Method that also touches memory of devices. Its transport is a
// [nixl.DeviceTransport], and each Memory that it takes is a [DeviceMemory].
type DeviceMethod interface {
	Method
	// Direct is that of nixl.DeviceTransport.
	Direct(m nixl.DeviceMemory) bool
}

// Handed holds the data that a peer needs to access a region.
type Handed struct {
	FD   int    // 0 for none; it stays the region's
	Note []byte // at most 200 bytes
	// Returned, if not nil, is called once, when the peer has closed the Memory it took, has
	// refused to take one, or has ended. It must not block.
	Returned func()
}

// Owner is the process whose memory is taken.
type Owner struct {
	PID  int         // as this process sees it
	Gone func() bool // whether it has ended
}

// Memory is a region of a peer, as a Method touches it.
type Memory interface {
	// Copy moves the bytes of local from, for a Read, or to, for a Write, the offsets
	// at in the region. It is called by a holder of the fence only. n is what was
	// moved; it is all of it when err is nil.
	Copy(op nixl.Op, local [][]byte, at []uint64) (n uint64, err error)
	// Close lets go of the region; no Copy runs or comes.
	Close()
}

// DeviceMemory is Memory that exchanges bytes with devices of this process, too.
type DeviceMemory interface {
	Memory
	// CopyDevice is Copy with memory of devices that the Method calls direct.
	CopyDevice(op nixl.Op, local []nixl.DevicePiece, at []uint64) (n uint64, err error)
	// PieceBytes returns the bytes to copy inside the fence at a time: a revocation
	// may have to wait for that copy.
	PieceBytes() uint64
}
