// Package requestplane carries requests from callers to endpoint handlers and streams the
// answers back, over TCP or inside one process.
//
// Start with [Server] and [Handler] on the answering side, [Client] and [Stream] on the
// calling side. [ListenTCP] and [NewTCPClient] are the network implementation: one
// pooled, multiplexed connection per peer pair, msgpack frames, flow control per stream,
// keep-alive. Both sides first prove that they know the cluster's secret; without a key,
// a server does not start and calls fail. [Memory] has the same contract without sockets,
// for tests and single-process use.
//
// A Server owns its listener, its connections and one goroutine group per running
// request; Close stops and awaits them all. A Client owns its pooled connections. Both
// are safe for concurrent use. A Stream belongs to one goroutine, except Close, which may
// be called from any.
//
// The package does not choose between instances and does not retry: only the caller knows
// which requests may be repeated. It does not interpret request bodies.
package requestplane
