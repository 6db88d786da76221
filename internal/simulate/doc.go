// Package simulate plays the load of a whole cluster in virtual time. It runs the product's
// own code where decisions are made: the engine with its scheduler, block pool and prefix
// cache (engine.Stepper), the router with its policies and its Load, the index of KV caches,
// the rules of conditional disaggregation and the frontend's queue. It models what takes
// time: steps, transfers of KV, the start of workers (docs/simulation.md).
//
// [Run] plays a [Config] and returns a [Result]. A [Source] gives the requests, one after the
// other; a profile.Profile says how fast workers are; a [Controller] may change the fleet
// while the load runs. A run is a function of its Config: it starts no goroutines, reads no
// clock, and gives the same bytes each time.
//
// A simulation belongs to one goroutine; several may run at once.
package simulate
