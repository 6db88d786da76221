// Package decode is the role of workers that generate tokens.
//
// A request comes in by generate.go. disaggregate.go decides whether its prompt is computed
// here or elsewhere; fill.go has the KV brought here, which a prefill worker writes
// (push.go, queue.go, direct.go, join_room.go) or this worker reads (pull.go). A drain
// hands sequences over to other decode workers: mover.go and handover_source.go here,
// handover_target.go there. ../DESIGN.md has the states and the protocol.
//
// Start with [Role].
package decode
