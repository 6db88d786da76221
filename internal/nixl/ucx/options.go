package ucx

import "time"

// Name is the name of this transport.
const Name = "ucx"

// Options configure a transport. The zero value works where there is an RDMA device.
type Options struct {
	// AnyNetwork uses UCX over whatever network there is, plain TCP included. Without it
	// the transport works over RDMA only and offers nothing where there is none.
	AnyNetwork bool
	// Listen is the address where peers say hello, by TCP; default "127.0.0.1:0".
	Listen string
	// AdvertiseHost is the host peers are told, if Listen names none or another one.
	AdvertiseHost string
	// Devices are the network devices to use, as UCX names them, such as "mlx5_0:1" or
	// "eth0"; empty leaves the choice to UCX. UCX_NET_DEVICES of the environment comes
	// first.
	Devices []string
	// Settings are more options of UCX, by name without the prefix UCX_.
	Settings map[string]string
	// ConnectTimeout bounds connecting, and the handshake and hello; default 3 s.
	ConnectTimeout time.Duration
	// SilenceTimeout is the time for which a connected peer may be silent before it counts as
	// dead; default 5 s. UCX reports a process that dies at once, this is for one that
	// was stopped. Small values mistake a starved peer for a dead one.
	SilenceTimeout time.Duration
	// MaxInbound is the number of connections peers may have open; default 256.
	MaxInbound int

	emulate bool // one-sided access without devices, for tests: UCX 1.13 may abort when a peer dies
}

func (o Options) withDefaults() Options {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
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
	pieceBytes  = 1 << 20   // of a transfer, between two flushes
	pieceDescs  = 256       // pieces of memory in them
	chunkBytes  = 128 << 10 // of a data frame
	gatherBytes = 16 << 10  // pieces of memory shorter than that share a data frame
	flying      = 4         // pieces of a transfer on their way
	flyingAll   = 8         // of all transfers of a session
	maxOpen     = 256       // accesses of a session
	windowCount = 64        // notifications of a session not accepted yet
	maxAhead    = 4096      // messages that overtook another one
	maxPing     = 250 * time.Millisecond
	minPing     = 5 * time.Millisecond
	flushTime   = time.Second            // for the last words of a connection
	settleTime  = 100 * time.Millisecond // for a connection that is closed while it is being made
	tick        = 5 * time.Millisecond   // workers are looked at this often even if UCX reports nothing
	idleTick    = 100 * time.Millisecond // while there are no connections
)
