// Package handshake begins every connection between nodes: both sides prove that they
// know the cluster's secret before anything else is said.
//
// Start with [Accept] and [Connect], which take a fresh connection and return one that
// may be used. [Lobby] bounds the connections that have not proved anything yet, and
// [Refusals] what is logged of them. The package owns no goroutines; a Lobby owns the
// connections that are in it. Everything may be used by several goroutines, except a
// connection in its handshake.
//
// # On the wire
//
// Four messages of fixed size, the client first:
//
//	client  name (6), version (1), 0 (1), nonce (32)
//	server  name (6), version (1), status (1), nonce (32)
//	client  HMAC-SHA256(key, "client" 0 T) (32)
//	server  status (1), HMAC-SHA256(key, "server" 0 T) (32)
//
// Name and version are those of the protocol that follows ([Protocol]). T is the SHA-256
// of a label of this package, both first messages, and the channel binding of TLS, or
// nothing without TLS. Nonces are random and new for every connection. A status other
// than 0 ends the conversation: 1 after the server's version, without a nonce, where
// the versions differ; 2, also without a nonce, where the server wants TLS; 3 with
// zeros in place of the proof where the client's proof was wrong. Nobody but the
// client believes a status, and only to explain why it gives up: who forges one has
// closed a connection, which whoever is on the path can do anyway.
//
// # Why so
//
// It is the mutual challenge and response of ISO/IEC 9798-4 (SKID3), with a hash of the
// whole conversation in both proofs, as in TLS 1.3 (RFC 8446, section 4.4).
//
//   - The client proves first. A server tells a stranger its protocol and version and
//     nothing else, keeps 40 bytes for it, and computes one hash.
//   - A recorded proof is worth nothing: it is bound to a nonce of the other side.
//   - A reflected proof is worth nothing: "client" and "server" keep the proofs apart.
//   - A proof for another protocol is worth nothing: its name is part of T, and callers
//     use a key for each ([credentials.Secret.Key]).
//   - The key has 256 random bits, so that recorded proofs cannot be searched for it.
//
// The handshake says who is there when a connection begins. Without TLS, who controls the
// network in between can still read along, and take the connection over once the proofs
// have passed. With TLS it cannot: T contains the channel binding of RFC 9266
// (tls-exporter), so that both proofs fail when the two sides are not the two ends of
// one and the same TLS session. Certificates are therefore not needed: [Ephemeral] makes
// one that nobody checks. For the same reason nobody can talk two sides out of TLS that
// would have used it.
package handshake
