// Package prefill is the role of workers that compute the KV of prompts for others.
//
// Work comes in three ways: as messages of the prefill queue (queue.go) and direct calls
// (compute.go), whose KV is written into the decode worker's memory while it is computed;
// as first hops of frontends, whose KV is held until a decode worker has read it (hold.go);
// and as first hops that meet the decode worker in a bootstrap room (room.go,
// room_prefill.go). ../DESIGN.md has the states of each.
//
// Start with [Role].
package prefill
