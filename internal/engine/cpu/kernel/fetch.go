package kernel

import "unsafe"

// pagesAhead is the distance at which a panel that is read once is prefetched: the
// processor's own prefetching stops at the end of a page.
const pagesAhead = 8192

// fetch says where the call-th of so many calls with a panel begins to prefetch, and how
// many bytes it goes on with each turn, which takes some bytes of the panel: a single
// call what comes two pages later, one of several an equal part of the panel that follows,
// so that memory is read all the time that rows are multiplied.
//
// Kernels bring it into the second cache: while there is room for few lines on the way to
// the first one, there is for many to the second, and from there the processor fetches
// by itself. The address need not be memory of anything, so it is none that the collector
// knows.
func fetch(panel unsafe.Pointer, size, turn, call, calls int) (ahead uintptr, pace int) {
	if calls == 1 {
		return uintptr(panel) + pagesAhead, turn
	}
	return uintptr(panel) + uintptr(size+size/calls*call), (turn + calls - 1) / calls
}
