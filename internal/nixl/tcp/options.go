package tcp

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// Name is the name of this transport.
const Name = "tcp"

// Options configure a transport. The zero value works on one machine.
type Options struct {
	// Listen is the address peers connect to; default "127.0.0.1:0", any free port.
	Listen string
	// AdvertiseHost is the host peers are told; default the one of Listen, which must
	// not be a wildcard then.
	AdvertiseHost string
	// Conns is the number of parallel connections to a peer; default 2, at most 16.
	Conns int
	// ConnectTimeout bounds dialing, and the handshake and hello; default 3 s.
	ConnectTimeout time.Duration
	// SilenceTimeout is the time for which a connected peer may be silent before it counts as
	// dead; default 5 s. A peer whose process dies is noticed at once, this is for
	// hosts that vanish. Small values mistake a starved peer for a dead one.
	SilenceTimeout time.Duration
	// MaxInbound is the number of connections peers may have open; default 1024.
	MaxInbound int
	// TLS, when set, returns the settings of each new connection, as client and as server.
	// Unless they are [handshake.Ephemeral], both sides also show certificates: they need
	// one and, for both directions, the authorities that are trusted. A ServerName, if set,
	// is expected of every peer in place of the host it is dialed at.
	TLS func() *tls.Config
	// Checksums adds a CRC-32C to every part and notification, if either side wants it:
	// what does not match fails with nixl.ErrMismatch.
	Checksums bool
	// SocketBuffer is the size of the kernel's buffers in bytes; 0 leaves it to the
	// kernel's autotuning.
	SocketBuffer int

	dial func(ctx context.Context, addr string) (net.Conn, error) // for tests
}

func (o Options) withDefaults() Options {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Conns <= 0 {
		o.Conns = 2
	}
	o.Conns = min(o.Conns, 16)
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = 3 * time.Second
	}
	if o.SilenceTimeout <= 0 {
		o.SilenceTimeout = 5 * time.Second
	}
	if o.MaxInbound <= 0 {
		o.MaxInbound = 1024
	}
	if o.dial == nil {
		d := net.Dialer{Timeout: o.ConnectTimeout}
		o.dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	return o
}

const (
	chunkBytes   = 1 << 20   // payload of one data frame
	chunkPieces  = 512       // pieces of memory in one data frame
	readPieces   = 64        // pieces of memory in one read
	splitBytes   = 512 << 10 // a part is at least this long, unless it is the only one
	maxOpen      = 64        // parts open on one connection
	maxOpenDescs = 1 << 16   // descriptors of the open parts of one connection
	maxReplies   = 256       // queued replies before the reader waits for the writer
	windowCount  = 64        // notifications of a session not accepted yet
	windowBytes  = 1 << 20
	helloBytes   = 4096 // of the largest hello
	minPing      = 5 * time.Millisecond
	flushTime    = 250 * time.Millisecond
	stageBytes   = 128 << 10 // copied out of the memory at a time, for TLS
)
