//go:build (amd64 || arm64) && !race

package kvindex

import "unsafe"

// prefetch asks the processor for a cache line, without waiting for it.
//
//go:noescape
func prefetch(line unsafe.Pointer)

// prefetchAll does that for several buckets.
//
//go:noescape
func prefetchAll(lines *[groupSize]*bucket)

// The stores are seen in their order, as those of sync/atomic, but the processor goes on
// with later loads meanwhile. A store of sync/atomic makes it wait for all loads before it
// and so undoes prefetching.

// publish stores a ref, then the key that makes readers use it.
//
//go:noescape
func publish(key *uint64, ref *uint32, k uint64, r uint32)

//go:noescape
func storeKey(key *uint64, k uint64)

//go:noescape
func storeRef(ref *uint32, r uint32)
