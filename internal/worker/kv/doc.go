// Package kv moves KV blocks between workers.
//
// A [Plane] is the KV data plane of one worker. It owns the NIXL agent, registers the
// KV pool with it, and opens the tickets under which peers read and write blocks.
// Start with [Open]. Blocks are moved by [Plane.Prepare], and by a [Writer] while their
// prompt is still being computed. [Peers] makes the agents of other workers known.
//
// The package knows blocks, tickets and peers. It knows neither roles nor requests:
// prefill and decode decide which blocks move, and when.
//
// All methods of a Plane may be called by several goroutines at once, until Close.
package kv
