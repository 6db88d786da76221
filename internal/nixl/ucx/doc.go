// Package ucx is the transport over UCX: one-sided access to the peer's memory by RDMA
// where there are devices for it, active messages elsewhere, if that is asked for.
//
// Start with [New], whose Transport goes into an agent's Config. UCX is loaded at run
// time (package ucp). Without an RDMA device the transport offers nothing, unless
// Options.AnyNetwork asks for what there is: package tcp is faster over plain networks.
//
// The target checks ticket and bounds of every access. With devices it hands out remote
// keys, the initiator moves the bytes and says when nothing is on its way any more; a
// grant is released then, or when the target has closed its end of the connection, through
// which alone the peer reaches memory. DESIGN.md has the argument.
//
// A transport owns one goroutine, on a thread of its own, which owns all its
// connections, and one for each socket, until Close. Who does not know the cluster's secret
// gets no further than the handshake on the socket. UCX itself does not authenticate and
// does not encrypt: whoever reaches its ports can send what the library does not check,
// so it belongs on networks that only the cluster's machines reach.
package ucx
