// Package handshake begins every connection between nodes: both sides prove that they
// know the cluster's secret before they send anything else.
//
// Start with [Accept] and [Connect], which take a new connection and return one that is
// safe to use. [Lobby] bounds the number of connections that have not proved anything
// yet, and [Refusals] bounds the log entries about them. The package owns no goroutines;
// a Lobby owns its connections. Everything may be used by several goroutines, except a
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
// than 0 ends the conversation: 1, without a nonce, if the versions differ; 2, also
// without a nonce, if the server requires TLS; 3, with zeros in place of the proof, if the
// client's proof was wrong. Only the client uses a status, and only to explain why it
// gives up. An attacker who forges one merely ends a connection, which an attacker on the
// path can do anyway.
//
// # Rationale
//
// It is the mutual challenge and response of ISO/IEC 9798-4 (SKID3), with a hash of the
// whole conversation in both proofs, as in TLS 1.3 (RFC 8446, section 4.4).
//
//   - The client proves first. Until then, a server reveals only its protocol and version,
//     keeps 40 bytes for the connection, and computes one hash.
//   - A recorded proof is worth nothing: it is bound to a nonce of the other side.
//   - A reflected proof is worth nothing: "client" and "server" keep the proofs apart.
//   - A proof for another protocol is worth nothing: its name is part of T, and callers
//     use a key for each ([credentials.Secret.Key]).
//   - The key has 256 random bits, so that recorded proofs cannot be searched for it.
//
// The handshake authenticates both sides at the beginning of a connection. Without TLS, an
// attacker who controls the network in between can still read the connection, and take it
// over after the proofs. TLS prevents that: T contains the channel binding of RFC 9266
// (tls-exporter), so that both proofs fail unless the two sides are the ends of the same
// TLS session. Certificates need not be verified, therefore; [Ephemeral] makes one that is
// not. For the same reason an attacker cannot make two sides omit TLS that would have
// used it.
package handshake
