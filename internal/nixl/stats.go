package nixl

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// RefuseReason says why this agent rejected what a peer sent.
type RefuseReason uint8

// The reasons to reject.
const (
	RefusedNoTicket      RefuseReason = iota // access without a ticket
	RefusedUnknownTicket                     // never opened, or revoked or expired before
	RefusedRevoked                           // being revoked while other accesses end
	RefusedAccess                            // the ticket allows the other direction only
	RefusedBounds                            // memory the ticket does not cover
	RefusedMalformed                         // a message that breaks the protocol
	RefusedHello                             // a connection with a wrong secret, version, name or incarnation
	RefusedLimit                             // more connections or open requests than allowed
	RefusedChecksum                          // bytes that changed on the way
	refuseReasons
)

// String returns a word for metric labels.
func (r RefuseReason) String() string {
	switch r {
	case RefusedNoTicket:
		return "no_ticket"
	case RefusedUnknownTicket:
		return "unknown_ticket"
	case RefusedRevoked:
		return "revoked_ticket"
	case RefusedAccess:
		return "wrong_access"
	case RefusedBounds:
		return "out_of_bounds"
	case RefusedMalformed:
		return "malformed"
	case RefusedHello:
		return "bad_hello"
	case RefusedLimit:
		return "limit"
	case RefusedChecksum:
		return "bad_checksum"
	}
	return "other"
}

// MarshalText returns the word of String.
func (r RefuseReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Stats counts what an agent did since it started. Tx and Rx are transfers this
// agent posted (writes send, reads receive); In and Out are accesses of peers.
type Stats struct {
	TxBytes    uint64 // of writes that succeeded
	RxBytes    uint64 // of reads that succeeded
	TxRequests uint64 // posted writes
	RxRequests uint64 // posted reads
	Succeeded  uint64
	Errors     map[Status]uint64  // failed transfers by status; those that occurred
	XferTime   time.Duration      // sum over transfers that succeeded
	Transports map[string]Traffic // by name

	InBytes   uint64 // peers wrote into this agent's memory, also in writes that failed later
	OutBytes  uint64 // peers read from this agent's memory
	InWrites  uint64 // accesses that ended; one transfer may be several
	OutReads  uint64
	Refused   map[RefuseReason]uint64 // those that occurred
	PeerDowns uint64                  // connections that broke, both directions
	Fallbacks map[Fallback]uint64     // peers that were loaded over a lower-ranked transport

	NotifySent     uint64 // confirmed by the peer
	NotifyReceived uint64 // handed to the consumer
	NotifyWaiting  int    // accepted, not yet taken by the consumer

	TicketsOpen     int
	TicketsExpired  uint64
	TransfersIn     int // accesses of peers now running
	TransfersOut    int // posted transfers now running
	Regions         int
	RegisteredBytes uint64
}

type counters struct {
	txBytes, rxBytes, txRequests, rxRequests atomic.Uint64
	succeeded                                atomic.Uint64
	errors                                   [16]atomic.Uint64 // by negated status
	xferTime                                 atomic.Int64
	inBytes, outBytes, inWrites, outReads    atomic.Uint64
	refused                                  [refuseReasons]atomic.Uint64
	peerDowns                                atomic.Uint64
	notifyOut, notifyIn                      atomic.Uint64
	ticketsExpired                           atomic.Uint64

	mu        sync.Mutex
	fallbacks map[Fallback]uint64 // few: pairs of transports by status
}

func (c *counters) fellBack(f Fallback) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fallbacks == nil {
		c.fallbacks = map[Fallback]uint64{}
	}
	c.fallbacks[f]++
}

func (c *counters) fallen() map[Fallback]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.fallbacks)
}

func (c *counters) refuse(r RefuseReason) {
	if r < refuseReasons {
		c.refused[r].Add(1)
	}
}

func (c *counters) accessed(op Op, bytes uint64) {
	if op == Write {
		c.inWrites.Add(1)
		c.inBytes.Add(bytes)
		return
	}
	c.outReads.Add(1)
	c.outBytes.Add(bytes)
}

func (c *counters) posted(op Op) {
	if op == Write {
		c.txRequests.Add(1)
		return
	}
	c.rxRequests.Add(1)
}

func (c *counters) ended(op Op, st Status, bytes uint64, took time.Duration) {
	if st != Success {
		if i := -int(st); i > 0 && i < len(c.errors) {
			c.errors[i].Add(1)
		}
		return
	}
	c.succeeded.Add(1)
	c.xferTime.Add(int64(took))
	if op == Write {
		c.txBytes.Add(bytes)
		return
	}
	c.rxBytes.Add(bytes)
}

// Stats returns the counters.
func (a *Agent) Stats() Stats {
	c := &a.stats
	s := Stats{
		TxBytes: c.txBytes.Load(), RxBytes: c.rxBytes.Load(), TxRequests: c.txRequests.Load(), RxRequests: c.rxRequests.Load(),
		Succeeded: c.succeeded.Load(), Errors: statusCounts(&c.errors), Transports: a.paths.byTransport(), XferTime: time.Duration(c.xferTime.Load()),
		InBytes: c.inBytes.Load(), OutBytes: c.outBytes.Load(), InWrites: c.inWrites.Load(), OutReads: c.outReads.Load(),
		Refused: map[RefuseReason]uint64{}, PeerDowns: c.peerDowns.Load(),
		NotifySent: c.notifyOut.Load(), NotifyReceived: c.notifyIn.Load(), NotifyWaiting: a.inbox.waiting(),
		TicketsExpired: c.ticketsExpired.Load(),
	}
	s.Regions, s.RegisteredBytes = a.regions.count()
	for i := range c.refused {
		if n := c.refused[i].Load(); n > 0 {
			s.Refused[RefuseReason(i)] = n
		}
	}
	s.Fallbacks = c.fallen()
	s.TicketsOpen = a.Tickets()
	s.TransfersIn, s.TransfersOut = a.InFlight()
	return s
}
