// Package runtime is the distributed runtime of a worker, a frontend or an agent. It
// combines store, request plane and event bus into one lease, endpoints that others
// discover, keys that live as long as the lease, and clients of other endpoints.
//
// Start with [New] and [DistributedRuntime.In], which leads from a namespace over its
// components to endpoints. [Endpoint.Serve] answers requests; [Endpoint.Client] follows the
// instances, and a [Balancer] distributes calls over them. [DistributedRuntime.PutOwned]
// publishes a key under the lease. A [Canary] probes an endpoint, for
// [DistributedRuntime.Health]. [Config].Static replaces the store by known addresses.
//
// A DistributedRuntime owns its lease, its registrations and the goroutine that repairs
// them; Close revokes the lease and waits. It uses but never closes the store, the
// request plane and the bus that it was given, so that many runtimes can share them.
// Everything here may be used by several goroutines at once.
//
// After a lost lease, the runtime takes a new one under another id and registers
// everything again. While the store is merely unreachable, it changes nothing;
// [DistributedRuntime.Lease] reports it. The package knows nothing about roles, models or
// drains.
package runtime
