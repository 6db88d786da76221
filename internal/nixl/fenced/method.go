//go:build linux

package fenced

import "github.com/dynctl/dynctl/internal/nixl"

// Method is how an initiator touches memory of another process of its host. One
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
	// Hand returns the descriptor that a peer needs for a region of this process; 0 if
	// it needs none. The descriptor stays the region's.
	Hand(s nixl.Share) (fd int, err error)
	// Take makes a region of the peer usable. fd, if not 0, is the caller's.
	Take(o Owner, base nixl.Desc, addr uint64, fd int) (Memory, error)
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
