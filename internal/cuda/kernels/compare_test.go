package kernels_test

import (
	"bytes"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
	"github.com/dynctl/dynctl/internal/patience"
)

// device runs operations: the shim, or the pretended driver with functions
// in Go.
type device interface {
	testing.TB
	kerneltest.Memory
	queue() *kernels.Queue
	finish()
}

// lab has the operands of a test.
type lab struct {
	testing.TB
	*kerneltest.Lab
	device device
}

func newLab(d device, name string) *lab { return &lab{d, kerneltest.NewLab(d, name), d} }

func (l *lab) must(errs ...error) {
	l.Helper()
	for _, err := range append(errs, l.Err()) {
		if err != nil {
			l.Fatal(err)
		}
	}
}

// noRaces is why tests of arithmetic are left out under the race detector.
const noRaces = "arithmetic, which takes ten times as long; package emulator and the engine run with the race detector"

// TestCases compares what kernels make on the shim with what their functions in Go do.
func TestCases(t *testing.T) {
	if patience.RaceDetector {
		t.Skip(noRaces)
	}
	for _, c := range kerneltest.Cases() {
		if !c.Large {
			t.Run(c.Name, func(t *testing.T) { compare(t, c) })
		}
	}
}

// seeds are orders in which threads run.
var seeds = []uint64{1, 2}

// compare runs an operation on the shim, in several orders of threads, and by its function
// in Go, and compares what they wrote.
func compare(t *testing.T, c kerneltest.Case) {
	t.Helper()
	want := perform(newTwin(t), c)
	var first []kerneltest.Output
	for _, seed := range seeds {
		got := perform(newHostDevice(t, seed), c)
		for i, g := range got {
			if err := g.Differs(want[i]); err != nil {
				t.Errorf("seed %d: %s: %v", seed, g.Name, err)
			}
			if first != nil && !bytes.Equal(g.Memory, first[i].Memory) {
				t.Errorf("%s depends on the order in which threads run", g.Name)
			}
		}
		if first == nil {
			first = got
		}
	}
}

// perform runs an operation on a device and returns what it wrote.
func perform(d device, c kerneltest.Case) []kerneltest.Output {
	d.Helper()
	l := newLab(d, c.Name)
	launch := c.Prepare(l.Lab)
	l.must(launch(d.queue()))
	d.finish()
	return l.Outputs
}

// twin is the pretended driver.
type twin struct {
	*testing.T
	*kerneltest.Twin
}

func newTwin(t *testing.T) *twin {
	t.Helper()
	w, err := kerneltest.NewTwin()
	if err != nil {
		t.Fatal(err)
	}
	return &twin{t, w}
}

func (w *twin) queue() *kernels.Queue { return w.Queue() }

func (w *twin) finish() {
	w.Helper()
	if err := w.Finish(); err != nil {
		w.Fatal(err)
	}
}

var _ kernels.Launcher = driver.Driver(nil)
