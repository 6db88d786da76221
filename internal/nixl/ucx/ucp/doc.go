// Package ucp is a binding of UCX's protocol layer, libucp, as far as package ucx
// needs it: remote memory access, active messages and the wake-up of a worker. The
// library is loaded at run time, without cgo.
//
// Start with [Load], then [Library.NewContext], [Context.NewWorker] and
// [Worker.Connect]. Releases from 1.13 on work: structures of libucp grow at their end
// only, and a mask says which fields are set (layout.go).
//
// A Worker and its Endpoints and requests belong to one goroutine, locked to its
// thread, which calls [Worker.Progress], where messages arrive. A Context may be used from several goroutines. Everything must
// be closed by who made it: requests first, then endpoints, keys, the worker, memory, the
// context.
//
// The package does not check what a peer sends: an address or a remote key that did not
// come from UCX can crash the process, so that callers take them from authenticated
// peers only.
package ucp
