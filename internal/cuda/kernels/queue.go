package kernels

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// Launcher puts kernels into streams, and describes matrices to them; every driver.Driver
// is one.
type Launcher interface {
	TensorMapEncode(device int, m *driver.TensorMap) (driver.EncodedTensorMap, error)
	LaunchKernel(device int, l *driver.Launch, stream uint64) error
}

// Queue puts operations into one stream of a device. Its methods return when the work is
// in the stream; addresses are those of the device's memory, and must stay until it has
// ended. Shapes that a kernel cannot compute are refused with driver.ErrInvalid. Operations
// over nothing do nothing. A Queue is not for several goroutines at a time.
type Queue struct {
	launcher  Launcher
	functions map[string]uint64
	device    int
	stream    uint64
	launch    driver.Launch // of the operation at hand
	tuning    Tuning
	maps      map[matrix]*driver.EncodedTensorMap
	preparing bool
}

// NewQueue makes a queue; functions are the kernels of [Modules] by name, as the driver
// loaded them.
func NewQueue(l Launcher, functions map[string]uint64, device int, stream uint64) *Queue {
	q := &Queue{launcher: l, functions: functions, device: device, stream: stream}
	return q.Tune(Tuning{})
}

// Prepare calls f, whose operations are checked as always and launched not at all: what
// they need of the host is there when they are put into the stream later.
func (q *Queue) Prepare(f func() error) error {
	q.preparing = true
	defer func() { q.preparing = false }()
	return f()
}

// args begins a launch; the arguments are appended to what it returns.
func (q *Queue) args() *driver.Args {
	q.launch = driver.Launch{Args: q.launch.Args}
	q.launch.Args.Reset()
	return &q.launch.Args
}

// Sizes of grids on every device.
const (
	maxGridX = 1<<31 - 1
	maxGridY = 1<<16 - 1
)

// run launches a kernel with the arguments.
func (q *Queue) run(kernel string, x, y, z, threads, shared int) error {
	if x > maxGridX || y > maxGridY || z > maxGridY {
		return fmt.Errorf("%w: %s: a grid of %d x %d x %d blocks", driver.ErrInvalid, kernel, x, y, z)
	}
	f, ok := q.functions[kernel]
	if !ok {
		return fmt.Errorf("%w: kernel %s is not loaded", driver.ErrInvalid, kernel)
	}
	q.launch.Function = f
	q.launch.Grid = driver.Dim{X: uint32(x), Y: uint32(y), Z: uint32(z)}
	q.launch.Block = driver.Dim{X: uint32(threads), Y: 1, Z: 1}
	q.launch.SharedBytes = uint32(shared)
	q.launch.Overlap = q.tuning.Overlap
	if q.preparing {
		return nil
	}
	return q.launcher.LaunchKernel(q.device, &q.launch, q.stream)
}

// shape collects what is wrong with an operation; the first is what counts.
type shape struct {
	op  string
	err error
}

func (s *shape) require(ok bool, format string, args ...any) {
	if !ok && s.err == nil {
		s.err = fmt.Errorf("%w: %s: %s", driver.ErrInvalid, s.op, fmt.Sprintf(format, args...))
	}
}

// size is a number of values, at least 1 and a multiple of another.
func (s *shape) size(name string, n, of int) {
	if n < 1 || n%of != 0 || n > 1<<31-1 {
		s.require(false, "%s is %d, and must be a positive multiple of %d", name, n, of)
	}
}

// count is a number of things, which may be none.
func (s *shape) count(name string, n int) {
	if n < 0 || n > 1<<31-1 {
		s.require(false, "%s is %d", name, n)
	}
}

// aligned are addresses that kernels read or write 16 bytes at a time.
func (s *shape) aligned(addresses ...uint64) {
	for _, a := range addresses {
		if a == 0 || a%16 != 0 {
			s.require(false, "%#x is not the address of values at a multiple of 16 bytes", a)
		}
	}
}

// present are addresses that must be given.
func (s *shape) present(addresses ...uint64) {
	for _, a := range addresses {
		if a == 0 || a%4 != 0 {
			s.require(false, "%#x is not the address of values", a)
		}
	}
}

func blocks(n, of int) int { return (n + of - 1) / of }
