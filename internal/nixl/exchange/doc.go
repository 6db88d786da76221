// Package exchange is the protocol by which two NIXL agents give each other their
// metadata directly, without a store: LOAD (take mine), SEND (give me yours), INVL
// (forget mine).
//
// Start with [Dial] and [Serve], the two ends of one connection that somebody else
// opened and began with a handshake: nixl/tcp serves it at its listener. Every message
// carries a code made with a key of this connection, so that nothing can be changed,
// repeated or sent back. It does not encrypt.
//
// The package owns no goroutine and no connection. A Client is for one goroutine.
package exchange
