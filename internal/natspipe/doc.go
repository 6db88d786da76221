// Package natspipe carries byte streams between processes that reach the same NATS server
// and need not reach each other.
//
// Start with [Hub], which makes pipes over a connection to NATS that the process has
// anyway: [Hub.Dial] calls a [Listener] of another process, and both sides get a [Conn], a
// [net.Conn]. A Hub has one subscription for all its pipes, and one goroutine, which Close
// awaits; a Conn has none.
//
// NATS delivers a message at most once. A pipe therefore numbers its messages, and ends with
// an error on both sides at the first number that is missing or comes twice: what Read has
// returned is always a prefix of what was written. A peer that is gone, or silent, ends the
// pipe, too. Nothing is sent again: a broken pipe is replaced by another one, as with TCP.
//
// Nobody is authenticated here, and nothing encrypted: whoever may publish on the subjects
// of a pipe can end it, or add bytes. What runs on a pipe has to prove who is there.
package natspipe
