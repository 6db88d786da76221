// Package worker runs one worker: an engine in one role, its data path, its
// endpoints and its lease.
//
// Start with [Worker.Run], which takes a worker through its life, and with
// disaggregate.go and prefill.go for the two ends of a remote prefill; DESIGN.md
// lists its states, and who may touch which block in each.
//
// Run owns every goroutine, the KV memory and the lease, and has released them
// when it returns. Drain and Resume may be called at any time from elsewhere.
//
// The package does not decide where workers run or when they restart; the agent
// does.
package worker
