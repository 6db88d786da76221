//go:build linux

package fencedtest

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Resources counts the resources of this process: descriptors, mapped shared memory, and
// sockets among the descriptors.
type Resources struct{ FDs, Maps, Sockets int }

// Held looks at this process.
func Held(t testing.TB) (r Resources) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	r = Resources{FDs: len(fds), Maps: strings.Count(string(maps), "memfd:")}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			r.Sockets++
		}
	}
	return r
}

// NothingLeft checks at the end of a test that everything was given back.
func NothingLeft(t testing.TB) {
	t.Helper()
	before := Held(t)
	t.Cleanup(func() {
		var after Resources
		for range 2000 {
			if after = Held(t); after == before {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Errorf("held before %+v, after %+v", before, after)
	})
}
