package failpoint_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynctl/dynctl/internal/failpoint"
)

var point = failpoint.New("test.point")

// A point does what it is armed with exactly once, at the hit that was asked for.
func TestArm(t *testing.T) {
	point.Hit() // nothing is armed
	var did atomic.Int64
	disarm, err := failpoint.Arm("test.point", 3, func() { did.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	for hit, want := range []int64{0, 0, 1, 1, 1} {
		if point.Hit(); did.Load() != want {
			t.Fatalf("after hit %d it happened %d times, want %d", hit+1, did.Load(), want)
		}
	}
	disarm()

	if disarm, err = failpoint.Arm("test.point", 1, func() { did.Add(1) }); err != nil {
		t.Fatal(err)
	}
	disarm()
	point.Hit()
	if did.Load() != 1 {
		t.Error("a disarmed point did something")
	}
}

// An old disarm leaves alone what was armed later.
func TestArmedAnew(t *testing.T) {
	did := false
	old, err := failpoint.Arm("test.point", 1, func() { t.Error("replaced") })
	if err != nil {
		t.Fatal(err)
	}
	disarm, err := failpoint.Arm("test.point", 1, func() { did = true })
	if err != nil {
		t.Fatal(err)
	}
	defer disarm()
	old()
	if point.Hit(); !did {
		t.Error("the later one was taken back")
	}
}

// Of many goroutines one is the n-th.
func TestHitsAtTheSameTime(t *testing.T) {
	var did atomic.Int64
	disarm, err := failpoint.Arm("test.point", 50, func() { did.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	defer disarm()
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(point.Hit)
	}
	wg.Wait()
	if did.Load() != 1 {
		t.Errorf("it happened %d times", did.Load())
	}
}

func TestArmRefuses(t *testing.T) {
	if _, err := failpoint.Arm("test.none", 1, func() {}); err == nil {
		t.Error("an unknown point was armed")
	}
	if _, err := failpoint.Arm("test.point", 0, func() {}); err == nil {
		t.Error("hit 0 was accepted")
	}
	if !slices.Contains(failpoint.Names(), "test.point") {
		t.Errorf("names %q", failpoint.Names())
	}
	defer func() {
		if recover() == nil {
			t.Error("a name was taken twice")
		}
	}()
	failpoint.New("test.point")
}

func BenchmarkHit(b *testing.B) {
	for b.Loop() {
		point.Hit()
	}
}
