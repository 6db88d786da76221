//go:build linux

package fenced

import "time"

// Options configure a transport. The zero value works.
type Options struct {
	// ConnectTimeout bounds connecting, and the handshake and hello; default 3 s.
	ConnectTimeout time.Duration
	// SilenceTimeout is the time for which a connected peer may be silent before it counts as
	// dead; default 5 s. A process that dies is noticed at once, this is for one that
	// was stopped. Small values mistake a starved peer for a dead one.
	SilenceTimeout time.Duration
	// MaxInbound is the number of connections peers may have open; default 256.
	MaxInbound int
}

func (o Options) withDefaults() Options {
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = 3 * time.Second
	}
	if o.SilenceTimeout <= 0 {
		o.SilenceTimeout = 5 * time.Second
	}
	if o.MaxInbound <= 0 {
		o.MaxInbound = 256
	}
	return o
}

const (
	pieceBytes    = 1 << 20 // copied inside the fence at a time
	pieceDescs    = 256     // pieces of memory in them
	splitBytes    = 4 << 20 // of a transfer, for each goroutine that copies
	maxOpen       = 256     // accesses of a session
	maxQueued     = 1024    // frames waiting to be sent before the reader waits, too
	windowCount   = 64      // notifications of a session not accepted yet
	maxNote       = 200     // of a method about a region, in bytes
	helloBytes    = 4096    // of the largest hello
	minPing       = 5 * time.Millisecond
	closePatience = time.Second // of a closing target with a peer that has regions
	flushTime     = 250 * time.Millisecond
)
