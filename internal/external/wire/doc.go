// Package wire has what adapters for servers of other engines share: an HTTP client that is
// bounded in everything, client bodies that are edited without a change to the rest of their
// bytes, answers as streams of tokens or of the server's own chunks, and metrics.
//
// Start with [Client]; an answer to tokens is assembled by [Tokens], one to a client's body is
// passed on by [Client.PassOn]. A Client may be used concurrently; everything else belongs to
// one request. The package knows no engine.
package wire
