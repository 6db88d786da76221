package cluster

import "time"

// FlightKind is the kind of a change of a flight.
type FlightKind string

// Kinds of changes, in the order in which a flight has them.
const (
	FlightBegin     FlightKind = "begin"     // a request was sent to a worker
	FlightPrefilled FlightKind = "prefilled" // the worker has computed the prompt
	FlightGrown     FlightKind = "grown"     // its output has filled more KV blocks
	FlightEnd       FlightKind = "end"       // the request has left the worker
)

// FlightChange is one change of a flight. A flight is one request of a frontend at one
// worker.
type FlightChange struct {
	Kind FlightKind `json:"kind"`
	// Phase is the role for which the worker was chosen: decode or prefill.
	Phase Role `json:"phase"`
	// Flight is the number of the flight among those of the frontend in that phase.
	Flight uint64 `json:"flight"`

	// These come with FlightBegin only. Hashes are the sequence hashes of the prompt's
	// full blocks, Uncached the prompt tokens that the worker has to compute.
	Worker   InstanceID `json:"worker,omitempty"`
	Hashes   []uint64   `json:"hashes,omitempty"`
	Uncached int        `json:"uncached,omitempty"`

	// Blocks comes with FlightGrown only: the full KV blocks that follow those of the prompt.
	Blocks int `json:"blocks,omitempty"`
}

// FlightEvents are changes of a frontend's flights, in their order. The changes of an epoch
// are numbered from 0, so that readers notice lost ones; a higher epoch begins when the
// frontend itself has lost some. Readers then ask its endpoint flights. Events without
// changes, one a second, tell the position.
type FlightEvents struct {
	Frontend InstanceID     `json:"frontend"`
	Epoch    uint64         `json:"epoch"`
	First    uint64         `json:"first"` // number of the first change
	Changes  []FlightChange `json:"changes,omitempty"`
}

// ReplicaSync is what a frontend knows of the requests that other frontends have in flight.
type ReplicaSync struct {
	// Off says why the frontend counts only its own requests; empty if it does not.
	Off       string            `json:"off,omitempty"`
	Frontends []ReplicaFrontend `json:"frontends,omitempty"`
}

// ReplicaFrontend is another frontend, as one frontend knows it.
type ReplicaFrontend struct {
	Frontend   string     `json:"frontend"` // node name
	InstanceID InstanceID `json:"instance_id"`
	Flights    int        `json:"flights"` // requests that it has in flight
	// OutOfDateSince is when changes are known to be missing; zero if none are.
	OutOfDateSince time.Time `json:"out_of_date_since,omitzero"`
	GapsTotal      uint64    `json:"gaps_total"`      // changes that did not come
	SnapshotsTotal uint64    `json:"snapshots_total"` // answers with all flights
}
