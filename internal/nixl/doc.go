// Package nixl moves registered memory between workers: agents, descriptor
// lists, transfer requests, notifications and the tickets that fence memory. The model,
// its names and its numbers are those of NIXL.
//
// Start with [Agent] (one per worker), [Transfer] (one read or write of a
// descriptor list) and [TicketSpec] (what a peer may touch, and until when). Pools of
// blocks are prepared once and selected from by index ([Agent.PrepareLocal],
// [Agent.MakeTransfer]).
//
// Memory is the host's ([DRAM]) or a device's ([VRAM], through [DeviceMemory]). What
// belongs to a device is staged, so that transports see host memory only, unless one is a [DeviceTransport].
//
// Peers learn of each other by metadata blobs ([Agent.Metadata], [Agent.LoadRemote]), which
// their owners carry: workers keep them in the store.
//
// An agent owns its goroutines and those of its [Transport]s until Close
// returns; it never owns registered memory, which must stay mapped until
// [Region.Deregister] has succeeded. All methods of Agent, Region, Prepared and Transfer
// are safe to call at the same time. Notifications are delivered after the data
// they stand for is readable.
//
// Memory is touched by a peer only under a ticket that the target opened: the
// target checks ticket, access and bounds itself, and after [Agent.RevokeTicket]
// has returned nil no byte is read or written under that ticket any more.
//
// What was moved is counted by peer and transport ([Agent.Peers], [Agent.Stats]).
//
// The package does not choose whom to tell of its memory, and does not retry: a failed
// transfer is reported and the caller decides.
package nixl
