// Package route replays request traces against the router in virtual time: the real
// policies and their Load, the real prefix index, and for each worker the real engine with
// its scheduler and block pool, run by an engine.Stepper. The steps of the workers take
// the time that [H100] derives for an 8B model. KV events reach the index with a delay.
//
// A run is a function of its [Config]: it starts no goroutines, reads no clock and is the
// same each time. [Play] runs one workload with one policy, [Knee] looks for the highest
// rate that a policy serves, [Ideal] counts what one pooled cache would reuse. A worker is
// a device, which takes virtual time (backend.go), and its engine (worker.go);
// simulation.go drives workers, and tokens.go makes tokens of the blocks of a trace.
package route
