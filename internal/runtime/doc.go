// Package runtime joins store, request plane and events into what a worker, a
// frontend or an agent lives on: one lease, endpoints that others can find, keys
// that live as long as the lease, and clients of other endpoints.
//
// Start with [New] and [DistributedRuntime.Serve] on the serving side and [NewClient] on the
// calling side. [DistributedRuntime.PutOwned] publishes a key under the lease.
//
// A DistributedRuntime owns its lease, its registrations and the goroutine that repairs them;
// Close revokes the lease and waits. It uses, and never closes, the store, the
// request plane and the bus that it was given, so that many DRTs can share them.
// Everything here may be used by several goroutines at once.
//
// A lease that is lost is granted anew under another id, and everything is
// registered again; a store that is merely unreachable changes nothing but what
// [DistributedRuntime.Lease] says. The package chooses no instance among several, retries no
// request, and knows nothing about roles, models or drains.
package runtime
