package kerneltest

import (
	"slices"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
)

// Case is an operation with its operands, by which the kernels of a device are compared
// with the functions in Go: on the shim and in the emulator in tests, and on hardware.
type Case struct {
	// Name has no spaces, begins with the operation, and is that of no other case.
	Name string
	// Large cases have shapes of real models: the functions in Go take up to seconds.
	Large bool
	// Exact cases are for kernels for compute capability 9.0 and no other.
	Exact bool
	// Prepare makes the operands and returns what launches the operation. It may be called
	// again, in another lab.
	Prepare func(l *Lab) (launch func(q *kernels.Queue) error)
}

// Cases are all there are, in the order of what is computed first in a model.
func Cases() []Case {
	return slices.Concat(embedCases(), normCases(), matMulCases(), codeCases(), ropeCases(), decodeCases(), prefillCases(), gluCases(), gatedCases(), routeCases(), expertCases(), combineCases(), rankCases(), sampleCases(), copyCases())
}

// Kernels returns the kernels that the case launches, in order.
func (c Case) Kernels() ([]string, error) {
	r := &recorder{functions: map[string]uint64{}, names: map[uint64]string{}}
	for name := range functions {
		id := uint64(len(r.functions) + 1)
		r.functions[name], r.names[id] = id, name
	}
	l := NewLab(r, c.Name)
	launch := c.Prepare(l)
	if err := l.Err(); err != nil {
		return nil, err
	}
	err := launch(kernels.NewQueue(r, r.functions, 0, 1))
	return r.launched, err
}

// recorder is a device that does nothing.
type recorder struct {
	functions map[string]uint64
	names     map[uint64]string
	launched  []string
	used      uint64
}

// Alloc implements Memory.
func (r *recorder) Alloc(n int) (uint64, []byte, error) {
	r.used += uint64(n+15)/16*16 + 16
	return r.used - uint64(n+15)/16*16, make([]byte, n), nil
}

// TensorMapEncode implements kernels.Launcher.
func (r *recorder) TensorMapEncode(_ int, m *driver.TensorMap) (driver.EncodedTensorMap, error) {
	return fake.EncodeTensorMap(m)
}

// LaunchKernel implements kernels.Launcher.
func (r *recorder) LaunchKernel(_ int, l *driver.Launch, _ uint64) error {
	r.launched = append(r.launched, r.names[l.Function])
	return nil
}
