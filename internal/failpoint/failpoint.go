// Package failpoint names the steps of a protocol, so that a test can have something
// happen exactly there: most of all, that the process dies.
//
// A step is a variable of its package, and is passed by [Point.Hit]:
//
//	var pointQueued = failpoint.New("decode.queued")
//	...
//	pointQueued.Hit()
//
// Unless a test arms it, a hit is one atomic load. Only code can arm a point: no flag,
// setting or environment variable of a program does, so that nobody outside can.
//
// All functions may be called at the same time.
package failpoint

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Point is one named step.
type Point struct {
	armed atomic.Pointer[action]
}

// action is taken at the n-th hit, once.
type action struct {
	left atomic.Int64
	do   func()
}

var (
	mu     sync.Mutex
	byName = map[string]*Point{}
)

// New makes a point. A name that is taken is a mistake in the source, and panics.
func New(name string) *Point {
	mu.Lock()
	defer mu.Unlock()
	if byName[name] != nil {
		panic("failpoint " + name + " exists twice")
	}
	p := &Point{}
	byName[name] = p
	return p
}

// Hit says that the step is reached. When a test has armed the point, its function runs
// here, on this goroutine, before the caller goes on.
func (p *Point) Hit() {
	if a := p.armed.Load(); a != nil && a.left.Add(-1) == 0 {
		a.do()
	}
}

// Arm has do run at the n-th hit from now on, counted from 1, in place of what was armed
// before. It is for tests. disarm takes it back; it does not wait for do.
func Arm(name string, n int, do func()) (disarm func(), err error) {
	mu.Lock()
	defer mu.Unlock()
	p := byName[name]
	switch {
	case p == nil:
		return nil, fmt.Errorf("arm failpoint %q: no such point; known are %q", name, names())
	case n < 1:
		return nil, fmt.Errorf("arm failpoint %q: hit %d: expected 1 or more", name, n)
	}
	a := &action{do: do}
	a.left.Store(int64(n))
	p.armed.Store(a)
	return func() { p.armed.CompareAndSwap(a, nil) }, nil
}

// Names returns the sorted names of all points in the linked packages.
func Names() []string {
	mu.Lock()
	defer mu.Unlock()
	return names()
}

func names() []string { return slices.Sorted(maps.Keys(byName)) }
