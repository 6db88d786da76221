package kernel

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel/amxtest"
)

func init() {
	if amxtest.Emulated() {
		AssumeAMX()
	}
}

// TestEmulatedAMX runs the tests of products in bf16 at the level AMX on machines
// without it. Machines with AMX run them as they are.
func TestEmulatedAMX(t *testing.T) {
	if Best() == AMX {
		t.Skip("this machine has AMX")
	}
	if Best() < AVX512 {
		t.Skip("the level needs AVX-512, too, which nobody emulates")
	}
	amxtest.Run(t, "^(TestProductBF16|TestProductBF16Limits|TestProductBF16AgainstFloat64|TestProductBF16Rows|TestTilesAndGoroutines)$")
}

// TestTilesAndGoroutines computes in more goroutines than there are threads, while
// the collector stops and preempts them.
func TestTilesAndGoroutines(t *testing.T) {
	if Best() != AMX {
		t.Skip("this machine has no AMX")
	}
	r := rand.New(rand.NewPCG(31, 1))
	const cols, rows, goroutines, rounds = 64, 40, 6, 20
	src := weights(r, BF16, Width, cols)
	x := make([][]float32, rows)
	for i := range x {
		x[i] = normals(r, cols)
	}
	twin := callBF16(x, src, cols, AMX)
	tilesBF16Go(twin)
	want := outs(twin)
	stop := make(chan struct{})
	var collector, wait sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	})
	for g := range goroutines {
		wait.Go(func() {
			for n := range rounds {
				c := callBF16(x, src, cols, AMX)
				AMX.ProductBF16(c)
				for i, v := range outs(c) {
					if v != want[i] {
						t.Error(fmt.Sprint("goroutine ", g, ", round ", n, ": element ", i, " is ", v))
						return
					}
				}
				runtime.Gosched()
			}
		})
	}
	wait.Wait()
	close(stop)
	collector.Wait()
}
