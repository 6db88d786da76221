package kerneltest

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
)

// Twin is the pretended driver with all kernels, as functions in Go or as PTX that is
// emulated, as a device that operations run on. It keeps what was allocated: a case gets
// one of its own.
type Twin struct {
	d         *fake.Driver
	functions map[string]uint64
	stream    uint64
}

// twinBytes is the memory of a twin; only what is used exists.
const twinBytes = 64 << 30

// NewTwin has the functions in Go.
func NewTwin() (*Twin, error) {
	// The pretended driver wants names only.
	ptx := ".version 7.8\n.target sm_80\n"
	for name := range functions {
		ptx += ".visible .entry " + name + "()\n"
	}
	return newTwin(false, 0, kernels.NewModule("", []byte(ptx)))
}

// NewEmulated has the kernels as they are shipped, executed by package emulator in an order
// of warps that the seed chooses.
func NewEmulated(seed uint64) (*Twin, error) {
	return newTwin(true, seed, shipped()...)
}

// shipped are the modules, whose names of kernels take long to find.
var shipped = sync.OnceValue(kernels.Modules)

func newTwin(ptx bool, seed uint64, modules ...kernels.Module) (*Twin, error) {
	all, err := Kernels()
	if err != nil {
		return nil, err
	}
	t := &Twin{functions: map[string]uint64{}, d: fake.New(fake.Options{Kernels: all, PTX: ptx, Seed: seed, Devices: []driver.Properties{{
		Name: "pretended", Major: 9, MemoryBytes: twinBytes, SharedBytes: 227 << 10,
	}}})}
	for _, m := range modules {
		module, err := t.d.ModuleLoadData(0, m.PTX)
		if err != nil {
			return nil, err
		}
		for _, k := range m.Kernels {
			function, err := t.d.ModuleGetFunction(0, module, k)
			if err != nil {
				return nil, err
			}
			if err := t.d.FuncSetMaxDynamicShared(0, function, kernels.DynamicShared(k)); err != nil {
				return nil, err
			}
			t.functions[k] = function
		}
	}
	t.stream, err = t.d.StreamCreate(0)
	return t, err
}

// Alloc implements Memory; the content is the memory itself.
func (t *Twin) Alloc(n int) (uint64, []byte, error) {
	address, err := t.d.MemAlloc(0, int64(n))
	if err != nil {
		return 0, nil, err
	}
	memory := t.d.Bytes(address, n)
	if p := uintptr(unsafe.Pointer(unsafe.SliceData(memory))); p%8 != 0 {
		return 0, nil, fmt.Errorf("the pretended driver's memory is at %#x", p)
	}
	return address, memory, nil
}

// Queue returns the queue of operations.
func (t *Twin) Queue() *kernels.Queue { return kernels.NewQueue(t.d, t.functions, 0, t.stream) }

// Finish waits for them. What was done wrong is an error.
func (t *Twin) Finish() error {
	err := t.d.StreamSynchronize(0, t.stream)
	if faults := t.d.Faults(); faults != nil {
		return faults // all of them, where err is the first
	}
	return err
}
