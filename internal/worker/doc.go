// Package worker runs one worker: an engine in one role, its KV data plane, its
// endpoints and its lease.
//
// Start with [Worker.Run] (life.go), which takes a worker through its life. A core (model,
// KV plane, engine) stays as long as the worker; a term (lease, endpoints, clients) ends
// with its role. What a role does for requests is in a package of its own: prefill, decode;
// roles.go is the table of them. How KV moves is in package kv. DESIGN.md lists the states
// of that, and who may touch which block in each.
//
// Run owns every goroutine, the KV memory and the lease, and has released them when it
// returns. Drain, Turn and Resume may be called at any time from elsewhere.
//
// The package does not decide where workers run or when they restart; the agent
// does.
package worker
