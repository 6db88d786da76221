// Package fakedevice pretends to be a CUDA driver, for tests of package nixl/cudaipc on
// machines without a device: its memory are memfds that processes open by handle.
//
// Start with [New], which makes the driver as one process sees it; two of them in one
// process are strangers to each other. It is lazy: copies are done by a goroutine, and
// not before somebody asks for an event behind them, so that who does not wait finds
// old bytes. It takes notes of what CUDA forbids or leaves undefined: use of memory that
// was freed or closed, freeing what others have open, opening a handle twice or in the
// process that made it, and whatever is left at the end; see [Driver.Close].
package fakedevice
