// Package route replays request traces against the router in virtual time: the real
// policies and their Load, the real prefix index, and the real block pool for each worker.
// The steps of the workers take the time that [H100] derives for an 8B model. KV events
// reach the index with a delay.
//
// A run is a function of its [Config]: it starts no goroutines, reads no clock and is the
// same each time. [Play] runs one workload with one policy, [Knee] looks for the highest
// rate that a policy serves, [Ideal] counts what one pooled cache would reuse.
package route
