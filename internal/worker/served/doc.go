// Package served is the work of a worker whose engine is a server that others wrote: it watches
// the server, keeps account of its requests, and gives the roles prefill and decode that pass
// requests on.
package served
