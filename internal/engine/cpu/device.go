package cpu

import (
	"fmt"
	"os"
	"runtime"
	"sync"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
)

// Device is a set of cores and the pool of workers that all its backends share.
type Device struct {
	id    string
	cores int
	level kernel.Level
	node  int // NUMA node of its memory, negative: any
	pool  *pool
	turns turns

	closeOnce sync.Once
}

// maxCores bounds the workers of a device.
const maxCores = 1024

// ISAVariable is the environment variable from which [NewDevice] takes the set of
// instructions.
const ISAVariable = "DYNAMOD_CPU_ISA"

// NewDevice starts a device with so many cores and the instructions that the variable
// DYNAMOD_CPU_ISA names, or with all that the machine has. A name that cannot be
// used stands for portable, which always works; see [OpenDevice].
func NewDevice(id string, cores int) *Device {
	level, err := kernel.Parse(os.Getenv(ISAVariable))
	if err != nil {
		level = kernel.Portable
	}
	return newDevice(id, cores, level)
}

// DeviceOptions say how a device computes.
type DeviceOptions struct {
	// Cores is the number of workers; below 1 stands for all CPUs of the machine.
	Cores int
	// ISA is the set of instructions: portable, avx2, avx512, or auto or empty for the
	// best of the machine.
	ISA string
	// CPUs are those that the workers are bound to, all of them to all; nil leaves them
	// to the system. The process needs a few more processors of the runtime (GOMAXPROCS)
	// than all bound workers together, because those do not make room for each other.
	CPUs []int
	// Node is the NUMA node for packed weights and KV blocks; it counts only with CPUs,
	// and below 0 stands for the one of whoever writes there first.
	Node int
}

// OpenDevice starts a device that is called id, for example "cpu:0". Steps use the
// calling goroutine and Cores-1 goroutines of the device. It fails with
// [kernel.ErrLevel] for a set of instructions that does not exist or that the machine
// lacks.
func OpenDevice(id string, opts DeviceOptions) (*Device, error) {
	level, err := kernel.Parse(opts.ISA)
	if err != nil {
		return nil, fmt.Errorf("start device %s: %w", id, err)
	}
	d := &Device{id: id, cores: workers(opts.Cores), level: level, node: -1}
	d.pool = newBoundPool(d.cores, opts.CPUs)
	if len(opts.CPUs) > 0 && opts.Node >= 0 {
		d.node = opts.Node
	}
	return d, nil
}

func newDevice(id string, cores int, level kernel.Level) *Device {
	d := &Device{id: id, cores: workers(cores), level: level, node: -1}
	d.pool = newPool(d.cores)
	return d
}

// workers is their number for so many cores.
func workers(cores int) int {
	if cores < 1 {
		cores = runtime.NumCPU()
	}
	return min(cores, maxCores)
}

// ID is the device's name, for example "cpu:0".
func (d *Device) ID() string { return d.id }

// Name describes the device to people: "cpu 2c".
func (d *Device) Name() string { return fmt.Sprintf("cpu %dc", d.cores) }

// Cores is the number of workers.
func (d *Device) Cores() int { return d.cores }

// ISA is the set of instructions that the device uses: portable, avx2, avx512.
func (d *Device) ISA() string { return d.level.String() }

// Close waits for the running step, refuses waiting ones with [ErrClosed], and
// stops the workers. It may be called twice.
func (d *Device) Close() error {
	d.closeOnce.Do(func() {
		d.turns.close()
		d.pool.close()
	})
	return nil
}
