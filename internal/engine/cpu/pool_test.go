package cpu

import (
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/host"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func never() bool { return false }

func TestPoolRunsEachItemOnce(t *testing.T) {
	for _, workers := range []int{1, 2, 5} {
		p := newPool(workers)
		for round := range 500 {
			n := round % 37
			counts := make([]atomic.Int32, n)
			task := task{run: func(_ *lane, i int) { counts[i].Add(1) }}
			if got := p.run(&task, 0, n, never); got != n {
				t.Fatalf("run = %d, want %d", got, n)
			}
			for i := range counts {
				if c := counts[i].Load(); c != 1 {
					t.Fatalf("%d workers, round %d: item %d ran %d times", workers, round, i, c)
				}
			}
			if round%100 == 99 { // let the helpers park
				time.Sleep(2 * spinTime)
			}
		}
		p.close()
	}
}

// TestPoolResumes stops tasks at random items and goes on.
func TestPoolResumes(t *testing.T) {
	for _, workers := range []int{1, 3} {
		p := newPool(workers)
		const n = 50
		for round := range 200 {
			counts := make([]atomic.Int32, n)
			task := task{run: func(_ *lane, i int) { counts[i].Add(1) }}
			looks := 0
			stop := func() bool { looks++; return looks%(round%7+1) == 0 }
			rounds := 0
			for next := 0; next < n; rounds++ {
				next = p.run(&task, next, n, stop)
				for i := range counts {
					if done := counts[i].Load() == 1; done != (i < next) {
						t.Fatalf("stopped before item %d, item %d done = %v", next, i, done)
					}
				}
			}
		}
		p.close()
	}
}

func TestPoolLanesAreExclusive(t *testing.T) {
	p := newPool(4)
	defer p.close()
	task := task{run: func(l *lane, _ int) {
		l.keys = append(l.keys[:0], 1) // the race detector watches
		runtime.Gosched()
	}}
	for range 100 {
		p.run(&task, 0, 20, never)
	}
}

// TestBoundPool shows that workers of a bound pool, its leader included, run on its CPUs,
// and that the leader's thread may run everywhere again afterwards.
func TestBoundPool(t *testing.T) {
	all := host.AllowedCPUs()
	if runtime.GOOS != "linux" || len(all) < 2 {
		t.Skip("there is nothing to choose from")
	}
	own := all[1:2]
	p := newBoundPool(3, own)
	defer p.close()
	var elsewhere atomic.Int32
	for round := range 50 {
		task := task{run: func(*lane, int) {
			if !slices.Equal(host.AllowedCPUs(), own) {
				elsewhere.Add(1)
			}
		}}
		p.enter()
		p.run(&task, 0, 40, never)
		p.leave()
		if round%10 == 9 {
			time.Sleep(2 * spinTime) // let the helpers park
		}
	}
	if n := elsewhere.Load(); n > 0 {
		t.Errorf("%d items ran on a thread that is not bound to %v", n, own)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if got := host.AllowedCPUs(); !slices.Equal(got, all) {
		t.Errorf("after the step this thread may run on %v, want %v", got, all)
	}
}

func TestPoolFault(t *testing.T) {
	p := newPool(2)
	defer p.close()
	task := task{run: func(_ *lane, i int) {
		if i == 3 {
			panic(fakeFault{})
		}
	}}
	p.run(&task, 0, 10, never)
	if err := p.takeFault(); !errors.Is(err, ErrMemory) {
		t.Errorf("fault = %v, want ErrMemory", err)
	}
	if err := p.takeFault(); err != nil {
		t.Errorf("second fault = %v, want none", err)
	}
}

func TestPoolOtherPanicsPass(t *testing.T) {
	p := newPool(1)
	defer p.close()
	defer func() {
		if r := recover(); r != "bug" {
			t.Errorf("recovered %v, want the panic", r)
		}
	}()
	task := task{run: func(*lane, int) { panic("bug") }}
	p.run(&task, 0, 1, never)
}

// fakeFault looks like the runtime's error for a bad address.
type fakeFault struct{}

func (fakeFault) RuntimeError() {}
func (fakeFault) Error() string { return "fault" }
func (fakeFault) Addr() uintptr { return 0x1234 }

func BenchmarkPoolTask(b *testing.B) {
	p := newPool(2)
	defer p.close()
	task := task{run: func(*lane, int) {}}
	for b.Loop() {
		p.run(&task, 0, 4, never)
	}
}
