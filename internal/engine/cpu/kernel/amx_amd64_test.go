package kernel

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel/amxtest"
)

func init() {
	if amxtest.Emulated() {
		AssumeAMX()
	}
}

// TestEmulatedAMX runs the tests of products at the level AMX on machines without it. Machines with AMX run them as they are.
func TestEmulatedAMX(t *testing.T) {
	if Best() == AMX {
		t.Skip("this machine has AMX")
	}
	if Best() < AVX512 {
		t.Skip("the level needs AVX-512, too, which nobody emulates")
	}
	t.Run("bf16", func(t *testing.T) {
		amxtest.Run(t, "^(TestProductBF16|TestProductBF16Limits|TestProductBF16AgainstFloat64|TestProductBF16Rows|TestTilesAndGoroutines)$")
	})
	t.Run("int8", func(t *testing.T) {
		c := amxtest.Run(t, "^(TestProductInt8|TestProductInt8Extremes|TestProductInt8NoNumbers|TestInt8TilesAndGoroutines)$")
		if c.Products() > 0 || c.BytesProducts() < 10000 {
			t.Errorf("%d products of bytes on tiles, %d of bf16", c.BytesProducts(), c.Products())
		}
	})
}

// TestTilesAndGoroutines multiplies bf16 in many goroutines.
func TestTilesAndGoroutines(t *testing.T) {
	if Best() != AMX {
		t.Skip("this machine has no AMX")
	}
	r := rand.New(rand.NewPCG(31, 1))
	const cols, rows = 64, 40
	src := weights(r, BF16, Width, cols)
	x := make([][]float32, rows)
	for i := range x {
		x[i] = normals(r, cols)
	}
	twin := callBF16(x, src, cols, AMX)
	tilesBF16Go(twin)
	inGoroutines(t, outs(twin), func() []float32 {
		c := callBF16(x, src, cols, AMX)
		AMX.ProductBF16(c)
		return outs(c)
	})
}

// TestInt8TilesAndGoroutines does the same with quantized weights.
func TestInt8TilesAndGoroutines(t *testing.T) {
	needInt8Tiles(t)
	r := rand.New(rand.NewPCG(32, 1))
	const cols, rows = 96, 40
	src := quantizedRows(r, Q4_0, Width, cols)
	panel := aligned(PanelBytes(Q4_0, cols))
	Pack(Q4_0, unsafe.Pointer(&panel[0]), unsafe.Pointer(&src[0]), Width, cols)
	x := make([][]Block, rows)
	for i := range x {
		x[i] = randomBlocks(r, cols/BlockSize)
	}
	product := func(product func(Type, *CallInt8)) func() []float32 {
		return func() []float32 { return slices.Concat(productInt8(product, Q4_0, panel, x, cols/BlockSize)...) }
	}
	inGoroutines(t, product(int8ByRows)(), product(AMX.ProductInt8))
}

// inGoroutines computes in more goroutines than there are threads, while the collector
// stops and preempts them.
func inGoroutines(t *testing.T, want []float32, compute func() []float32) {
	const goroutines, rounds = 6, 20
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
				for i, v := range compute() {
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
