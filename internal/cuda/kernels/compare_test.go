package kernels_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/fake"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/cuda/kernels/kerneltest"
)

// device is where an operation runs: the shim, or the pretended driver with functions
// in Go.
type device interface {
	testing.TB
	alloc(n int) (address uint64, memory []byte)
	queue() *kernels.Queue
	finish()
}

// lab has the operands of a test. Both devices get the same ones.
type lab struct {
	device
	*rand.Rand
	outputs []output
}

type output struct {
	name   string
	memory []byte
	near   tolerance
}

// tolerance of bf16 and float32 outputs: a number of units in the last place of bf16,
// or a share of scale, the size that values have.
type tolerance struct {
	ulps   float64
	scale  float64
	float  bool // float32; else bf16
	counts bool // whole numbers, which must be equal
}

// exact is for whole numbers and copied bytes.
var exact = tolerance{counts: true}

// values allocates n values of a normal distribution, rounded to bf16.
func (l *lab) values(n int, scale float64) uint64 {
	address, memory := l.alloc(2 * n)
	for i := range n {
		binary.LittleEndian.PutUint16(memory[2*i:], uint16(kerneltest.Round(l.NormFloat64()*scale)))
	}
	return address
}

func (l *lab) int32s(v ...int32) uint64 {
	address, memory := l.alloc(4 * len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(memory[4*i:], uint32(x))
	}
	return address
}

func (l *lab) int64s(v ...int64) uint64 {
	address, memory := l.alloc(8 * len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint64(memory[8*i:], uint64(x))
	}
	return address
}

func (l *lab) float32s(v ...float32) uint64 {
	address, memory := l.alloc(4 * len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(memory[4*i:], math.Float32bits(x))
	}
	return address
}

// bytes makes memory of what kernels read.
func (l *lab) bytes(b []byte) uint64 {
	address, memory := l.alloc(len(b))
	copy(memory, b)
	return address
}

// out allocates n bytes that the operation writes; what it leaves alone must stay as it is.
func (l *lab) out(name string, n int, near tolerance) uint64 {
	address, memory := l.alloc(n)
	for i := range memory {
		memory[i] = 0x3c // a small number in every type
	}
	l.outputs = append(l.outputs, output{name, memory, near})
	return address
}

// inOut makes bf16 values that the operation changes.
func (l *lab) inOut(name string, n int, scale float64, near tolerance) uint64 {
	address, memory := l.alloc(2 * n)
	for i := range n {
		binary.LittleEndian.PutUint16(memory[2*i:], uint16(kerneltest.Round(l.NormFloat64()*scale)))
	}
	l.outputs = append(l.outputs, output{name, memory, near})
	return address
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// seeds are orders in which threads run.
var seeds = []uint64{1, 2}

// compare runs an operation on the shim, in several orders of threads, and by its function
// in Go, and compares what they wrote.
func compare(t *testing.T, operation func(l *lab, q *kernels.Queue)) {
	t.Helper()
	perform := func(d device) []output {
		l := &lab{device: d, Rand: rand.New(rand.NewPCG(7, 11))}
		operation(l, d.queue())
		d.finish()
		return l.outputs
	}
	want := perform(newFakeDevice(t))
	var first []output
	for _, seed := range seeds {
		got := perform(newHostDevice(t, seed))
		for i, g := range got {
			if err := g.differs(want[i]); err != nil {
				t.Errorf("seed %d: %s: %v", seed, g.name, err)
			}
			if first != nil && string(g.memory) != string(first[i].memory) {
				t.Errorf("%s depends on the order in which threads run", g.name)
			}
		}
		if first == nil {
			first = got
		}
	}
}

// differs returns the worst difference that is not tolerated.
func (o output) differs(want output) error {
	var worst float64
	var err error
	note := func(i int, got, want, allowed float64) {
		d := math.Abs(got - want)
		if got == want || d <= allowed || math.IsNaN(got) && math.IsNaN(want) {
			return
		}
		if over := d / allowed; !(over <= worst) {
			worst, err = over, fmt.Errorf("value %d is %g, and should be %g ± %g", i, got, want, allowed)
		}
	}
	switch {
	case o.near.counts:
		for i, b := range o.memory {
			if b != want.memory[i] {
				return fmt.Errorf("byte %d is %#x, and should be %#x", i, b, want.memory[i])
			}
		}
	case o.near.float:
		for i := range len(o.memory) / 4 {
			value := func(b []byte) float64 {
				return float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
			}
			note(i, value(o.memory), value(want.memory), o.near.of(value(want.memory)))
		}
	default:
		for i := range len(o.memory) / 2 {
			value := func(b []byte) float64 {
				return kerneltest.BF16(binary.LittleEndian.Uint16(b[2*i:])).Float()
			}
			note(i, value(o.memory), value(want.memory), o.near.of(value(want.memory)))
		}
	}
	return err
}

// of is the difference that is tolerated beside a value.
func (n tolerance) of(value float64) float64 {
	_, exponent := math.Frexp(max(math.Abs(value), n.scale, 0x1p-126))
	return n.ulps * math.Ldexp(1, exponent-8)
}

// fakeDevice is the pretended driver.
type fakeDevice struct {
	*testing.T
	d         *fake.Driver
	functions map[string]uint64
	stream    uint64
}

func newFakeDevice(t *testing.T) *fakeDevice {
	t.Helper()
	all, err := kerneltest.Kernels()
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeDevice{T: t, d: fake.New(fake.Options{Kernels: all}), functions: map[string]uint64{}}
	for _, m := range kernels.Modules() {
		module, err := f.d.ModuleLoadData(0, m.PTX)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range m.Kernels {
			function, err := f.d.ModuleGetFunction(0, module, k)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.d.FuncSetMaxDynamicShared(0, function, kernels.DynamicShared(k)); err != nil {
				t.Fatal(err)
			}
			f.functions[k] = function
		}
	}
	if f.stream, err = f.d.StreamCreate(0); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fakeDevice) alloc(n int) (uint64, []byte) {
	f.Helper()
	address, err := f.d.MemAlloc(0, int64(n))
	if err != nil {
		f.Fatal(err)
	}
	memory := f.d.Bytes(address, n)
	if p := uintptr(unsafe.Pointer(unsafe.SliceData(memory))); p%8 != 0 {
		f.Fatalf("the fake's memory is at %#x", p)
	}
	return address, memory
}

func (f *fakeDevice) queue() *kernels.Queue {
	return kernels.NewQueue(f.d, f.functions, 0, f.stream)
}

func (f *fakeDevice) finish() {
	f.Helper()
	if err := f.d.StreamSynchronize(0, f.stream); err != nil {
		f.Fatal(err)
	}
	if err := f.d.Faults(); err != nil {
		f.Fatal(err)
	}
}

var _ kernels.Launcher = driver.Driver(nil)
