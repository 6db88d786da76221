// Package nixl moves registered memory between workers: agents, descriptor
// lists, transfer requests, notifications and the tickets that fence memory.
//
// Start with [Agent] (one per worker), [Transfer] (one read or write of a
// descriptor list) and [TicketSpec] (what a peer may touch, and until when).
//
// An agent owns its goroutines and those of its [Transport]s until Close
// returns; it never owns registered memory, which must stay mapped until
// [Region.Deregister] has succeeded. All methods of Agent, Region and Transfer
// are safe to call at the same time. Notifications are delivered after the data
// they stand for is readable.
//
// Memory is touched by a peer only under a ticket that the target opened: the
// target checks ticket, access and bounds itself, and after [Agent.RevokeTicket]
// has returned nil no byte is read or written under that ticket any more.
//
// The package does not distribute metadata (the worker stores the bytes of
// [Agent.Metadata] where peers find them), does not encrypt, and does not retry:
// a failed transfer is reported and the caller decides.
package nixl
