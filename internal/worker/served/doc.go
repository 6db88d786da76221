// Package served is the work of a worker whose engine is a server that others wrote: it watches
// the server, keeps account of its requests, and gives the roles prefill, decode and encode that
// pass requests on. What a prompt shows or plays is encoded by other servers first, if there are
// some (elsewhere.go).
package served
