//go:build !(amd64 || arm64) || race

package kvindex

import (
	"sync/atomic"
	"unsafe"
)

// The race detector sees these stores; it does not see those in assembly.

func prefetch(unsafe.Pointer) {}

func prefetchAll(*[groupSize]*bucket) {}

func publish(key *uint64, ref *uint32, k uint64, r uint32) {
	atomic.StoreUint32(ref, r)
	atomic.StoreUint64(key, k)
}

func storeKey(key *uint64, k uint64) { atomic.StoreUint64(key, k) }

func storeRef(ref *uint32, r uint32) { atomic.StoreUint32(ref, r) }
