// Package device is one GPU in the hands of this process: its memory, planned and
// allocated once, its streams, events and timers, and a goroutine that issues work to it.
//
// Start with [Open] over a [driver.Driver]. [Budget] says how much memory the process may
// take, and [Plan.Fit] divides it. Each user of the device has a [Scope]: [Scope.Arena]
// allocates a part of the memory, and after [Scope.Seal] nothing is allocated any more.
// Work goes into a [Stream], some of it as a [Graph]; an [Event] says when it has ended,
// and nothing may be freed or used again before.
//
// A stream, as a queue of work, has one owner at a time. [Device.Run] gives whoever
// shares streams one thread on which their calls come one after the other; all other
// methods may be called by several goroutines. No wait is without an end: those that the
// driver cannot interrupt are made by polling.
//
// A fault inside a kernel, or of the device, loses everything on it for this process.
// Whoever sees it first ends the device: [Device.Lost] is closed, [Device.Err] says why,
// and every later call returns [ErrLost] with that reason.
//
// It works over the pretended driver of package fake, and has not yet run on hardware.
package device
