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
	pool  *pool
	turns turns

	closeOnce sync.Once
}

// maxCores bounds the workers of a device.
const maxCores = 1024

// ISAVariable is the environment variable from which [NewDevice] takes the set of
// instructions.
const ISAVariable = "DYNAMOD_CPU_ISA"

// NewDevice starts a device with the instructions that the variable
// DYNAMOD_CPU_ISA names, or with all that the machine has. A name that cannot be
// used stands for portable, which always works; see [NewDeviceISA].
func NewDevice(id string, cores int) *Device {
	level, err := kernel.Parse(os.Getenv(ISAVariable))
	if err != nil {
		level = kernel.Portable
	}
	return newDevice(id, cores, level)
}

// NewDeviceISA starts a device: id is what it is called ("cpu:0"), cores the number
// of workers, one per core; below 1 stands for all cores of the machine. Steps
// use the calling goroutine and cores-1 goroutines of the device. isa is the
// name of a [kernel.Level], or auto or empty for the best of the machine; others and
// those that the machine lacks fail with [kernel.ErrLevel].
func NewDeviceISA(id string, cores int, isa string) (*Device, error) {
	level, err := kernel.Parse(isa)
	if err != nil {
		return nil, fmt.Errorf("start device %s: %w", id, err)
	}
	return newDevice(id, cores, level), nil
}

func newDevice(id string, cores int, level kernel.Level) *Device {
	if cores < 1 {
		cores = runtime.NumCPU()
	}
	cores = min(cores, maxCores)
	return &Device{id: id, cores: cores, level: level, pool: newPool(cores)}
}

// ID is the device's name, for example "cpu:0".
func (d *Device) ID() string { return d.id }

// Name describes the device to people: "cpu 2c".
func (d *Device) Name() string { return fmt.Sprintf("cpu %dc", d.cores) }

// Cores is the number of workers.
func (d *Device) Cores() int { return d.cores }

// ISA is the set of instructions that the device uses: the name of a [kernel.Level].
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
