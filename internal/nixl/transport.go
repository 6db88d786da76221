package nixl

import (
	"context"
	"log/slog"

	"github.com/dynctl/dynctl/internal/handshake"
)

// Transport moves bytes to and from peers for one agent. Implementations live in
// sub-packages. A transport owns its goroutines and connections until Close.
//
// It may call the methods of Host and Job from any goroutine, but never while it
// holds a lock that Submit, Notify, Disconnect or Close take.
type Transport interface {
	// Name is the transport's name in logs, metrics and metadata, such as "tcp".
	Name() string
	// Start is called once, by NewAgent. It returns what peers need to reach this
	// agent, which travels in the metadata blob; nil if it cannot be reached.
	Start(h Host) (conn []byte, err error)
	// Reach reports how the peer would be reached, or why it cannot be. An error
	// that is not ErrNotSupported means that it should have been possible. It must not
	// block: it looks, it does not connect.
	Reach(r Remote) (reason string, err error)
	// Attach makes a generation known, before any other call for it. It must not
	// block. Calls for a generation that is not attached fail with ErrNotFound.
	Attach(r Remote)
	// Submit starts a job and never blocks. It ends every job with Job.Finish.
	Submit(r Remote, j *Job)
	// Notify delivers a message that belongs to no transfer. It returns when the
	// peer's agent has accepted it. Messages whose Notify calls follow one another
	// arrive in that order.
	Notify(ctx context.Context, r Remote, msg []byte) error
	// OpenProbe asks the peer for memory to test the path with, CloseProbe gives
	// it back.
	OpenProbe(ctx context.Context, r Remote) (Probe, error)
	CloseProbe(r Remote, id TicketID)
	// Disconnect ends all jobs for the generation with cause, and forgets it; jobs may
	// end shortly after it returns.
	// It does not report Host.PeerDown.
	Disconnect(r Remote, cause error)
	// Close ends everything and waits for it. Jobs end with ErrCanceled.
	Close() error
}

// Identity says who an agent is.
type Identity struct {
	Name        string
	Incarnation string
	HostID      string
}

// Remote is a loaded peer as a transport sees it.
type Remote struct {
	Identity
	Generation uint64 // of the loaded metadata; unique in this agent
	Conn       []byte // what the peer's transport of the same name returned from Start; nil if it has none
	// Private names a region of the peer that other processes cannot map; nil if all
	// can be.
	Private *string
	// Devices lists the peer's devices whose memory its [DeviceTransport] reaches, by index
	// at the peer, in order.
	Devices []uint64
}

// A RegionObserver is a Transport that is told when a region is deregistered, so
// that peers that have mapped it let go of its pages. Deregistered must not block.
type RegionObserver interface {
	Transport
	Deregistered(base Desc)
}

// A DeviceTransport is a Transport that moves memory of some devices without host memory
// in between. Peers move without it what all those of an agent reach.
type DeviceTransport interface {
	Transport
	// Direct reports whether jobs may name this memory of the agent: its own in
	// Job.Devices, and as a target in descriptors that [Host.Share] explains. The answer
	// for a memory never changes.
	Direct(m DeviceMemory) bool
}

// A RegionMapper is a Transport whose devices must know memory before they access it.
type RegionMapper interface {
	Transport
	// MapRegion is called when memory is registered, before any use; an error
	// refuses the registration. mem stays at its address until UnmapRegion has returned,
	// which is called when the region is deregistered and unused.
	MapRegion(base Desc, mem []byte) error
	UnmapRegion(base Desc)
}

// Host is the agent as a transport sees it: the target side of every access and
// the place where events are reported.
type Host interface {
	Self() Identity
	Limits() Limits
	// Key is that of Config: peers prove to know it from the first byte on.
	Key() handshake.Key
	Guard
	Receiver
	Events
}

// Guard lets accesses of peers to the agent's memory in.
type Guard interface {
	// Acquire checks an access by a peer and, if it is allowed, returns the memory.
	// The transport must release the Grant. Errors wrap a Status; refusals are
	// counted.
	Acquire(op Op, ticket TicketID, descs []Desc) (*Grant, error)
	// Share returns the region of d as other processes can touch it. It is valid while
	// a Grant for d is held. ErrNotSupported for memory that the host cannot address,
	// unless the transport reaches it; see DeviceTransport.
	Share(d Desc) (Share, error)
}

// Receiver takes the messages and self-tests of peers.
type Receiver interface {
	// Deliver queues a notification. done is called once, with nil when the agent
	// has accepted it within its byte limit, or with an error when it never will.
	// Notifications are delivered in the order of the calls. It never blocks.
	Deliver(from string, msg []byte, done func(error))
	// OpenProbe and CloseProbe serve Transport.OpenProbe and CloseProbe of a peer.
	OpenProbe(from string) (Probe, error)
	CloseProbe(id TicketID)
}

// Events takes reports of connections.
type Events interface {
	Log() *slog.Logger
	// PeerDown reports that the connection for an outgoing generation broke. The
	// agent forgets that generation.
	PeerDown(r Remote, cause error)
	// InboundUp and InboundDown report that a peer connected to this agent, and
	// that this connection ended. A nil cause is an orderly end, ErrUnused that of a
	// connection which the peer does not need now.
	InboundUp(transport string, from Identity)
	InboundDown(transport string, from Identity, cause error)
	// Refused counts what a peer sent and this agent rejected before Acquire.
	Refused(reason RefuseReason)
}

// Probe is a piece of scratch memory of a peer, with the ticket to use it.
type Probe struct {
	Ticket TicketID
	Desc   Desc
	Sum    uint32 // CRC-32C of its content when it was lent; 0 if a transport does not carry it
}
