// Package requestplane carries requests from callers to endpoint handlers and streams the
// answers back, over TCP, HTTP or NATS, or inside one process.
//
// Start with [Server] and [Handler] on the answering side, [Client] and [Stream] on the
// calling side. There are three networks with the same promises. [ListenTCP] serves one
// pooled connection per peer pair, multiplexed by yamux. [ListenNATS] does the same over
// NATS, for peers that cannot reach each other. [ListenHTTP] serves HTTP/2, so that
// programs that are no nodes can call endpoints in JSON. [NewClient] reaches all:
// the address says which. Nodes first prove to each other that they know the cluster's
// secret; without a key, a server does not start and calls fail. [Memory] has the same
// contract without sockets, for tests and single-process use.
//
// A Server owns its listener, its connections and one goroutine group per running
// request; Close stops and awaits them all. A Client owns its pooled connections. Both
// are safe for concurrent use. A Stream belongs to one goroutine, except Close, which may
// be called from any.
//
// The package does not choose between instances and does not retry: only the caller knows
// which requests may be repeated. It does not interpret request bodies.
package requestplane
