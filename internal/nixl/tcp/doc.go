// Package tcp is the transport that works everywhere: it moves registered memory
// over TCP connections, straight from and into the registered memory.
//
// Start with [New] and [Options]. The agent that posts a transfer (the initiator)
// dials the agent that owns the remote memory (the target); each pair has a session
// of a few connections per direction of posting, dialed at the first use.
//
// A transfer is cut into one part per connection. The initiator sends the
// descriptors of a part once and then raw bytes in large chunks; the target checks
// ticket and bounds, reads the bytes from the socket into the memory, and answers
// each part once. A revoked ticket or a canceled transfer interrupts the system call
// that touches the memory; the rest of the chunk is discarded, or padded, so that
// the connection stays usable. When one connection of a session breaks, the whole
// session ends and the peer has failed.
//
// A transport owns a reader and a writer goroutine per connection until Close.
// Memory that a peer can make it hold is bounded by [Options] and nixl.Limits and
// grows only with bytes that have arrived.
//
// Both sides of a connection first prove that they know the key of the agents (package
// handshake). With [Options].TLS all of it is encrypted, and the proofs are bound to the
// TLS session; with
// Checksums every part and notification carries a CRC-32C. The transport reconnects
// only after the peer was loaded again.
package tcp
