// Package source gets images and files of embeddings from where a request says they are: data
// URLs, web servers, and, if the operator allows it, files of this machine.
//
// A [Guard] says what is allowed. Requests come from anyone, so everything is bounded: bytes,
// also of what a server sends compressed or without end, redirects and time. Web servers must
// have public addresses, which is checked on the connection that is used, so that neither
// names nor redirects lead elsewhere. Files must lie in one directory, however links point.
//
// Errors that match [ErrRefused] have one text for all reasons, so that nobody learns from
// them which files or addresses exist here. [Reason] has the reason, for logs.
//
// A Guard may be used by many goroutines at once. Start with [New].
package source
