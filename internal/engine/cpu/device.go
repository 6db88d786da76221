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
	bf16  bool // activations are rounded where they meet weights of bf16
	pool  *pool
	turns turns

	warning string

	closeOnce sync.Once
}

// maxCores bounds the workers of a device.
const maxCores = 1024

// ISAVariable is the environment variable from which [NewDevice] takes the set of
// instructions.
const ISAVariable = "DYNAMOD_CPU_ISA"

// DeviceOptions choose what a device computes with.
type DeviceOptions struct {
	// ISA is portable, avx2, avx512, amx, or auto or empty for the best of the
	// machine.
	ISA string
	// Activations is their precision where they meet weights of bf16: f32, bf16 where
	// the machine has AVX512_BF16 or AMX, or auto or empty for the faster one.
	Activations string
}

// NewDevice starts a device with what the variables DYNAMOD_CPU_ISA and
// DYNAMOD_CPU_ACTIVATIONS name, or with all that the machine has. A set of
// instructions that cannot be used stands for portable, and a precision that cannot
// be used for f32, which always work; see [NewDeviceWith].
func NewDevice(id string, cores int) *Device {
	level, warning, err := parseLevel(os.Getenv(ISAVariable))
	if err != nil {
		level = kernel.Portable
	}
	d := newDevice(id, cores, level)
	d.bf16, _ = parseActivations(os.Getenv(ActivationsVariable), level)
	d.warning = warning
	return d
}

// NewDeviceISA is [NewDeviceWith] for a set of instructions.
func NewDeviceISA(id string, cores int, isa string) (*Device, error) {
	return NewDeviceWith(id, cores, DeviceOptions{ISA: isa})
}

// NewDeviceWith starts a device: id is what it is called ("cpu:0"), cores the number
// of workers, one per core; below 1 stands for all cores of the machine. Steps
// use the calling goroutine and cores-1 goroutines of the device. Instructions that
// do not exist or that the machine lacks fail with [kernel.ErrLevel], such a
// precision of activations with [ErrActivations].
func NewDeviceWith(id string, cores int, opts DeviceOptions) (*Device, error) {
	level, warning, err := parseLevel(opts.ISA)
	if err != nil {
		return nil, fmt.Errorf("start device %s: %w", id, err)
	}
	bf16, err := parseActivations(opts.Activations, level)
	if err != nil {
		return nil, fmt.Errorf("start device %s: %w", id, err)
	}
	d := newDevice(id, cores, level)
	d.bf16, d.warning = bf16, warning
	return d, nil
}

// parseLevel is kernel.Parse, and the level below with a warning where tiles do not
// compute what they should.
func parseLevel(isa string) (level kernel.Level, warning string, err error) {
	level, err = kernel.Parse(isa)
	if err == nil && level == kernel.AMX {
		if err := kernel.CheckAMX(); err != nil {
			return kernel.AVX512, fmt.Sprintf("AMX is not used: %v", err), nil
		}
	}
	return level, "", err
}

// newDevice starts a device that keeps activations in float32.
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

// ISA is the set of instructions that the device uses and, unless it is f32, the
// precision of activations: portable, avx2, avx512, "avx512 bf16", "amx bf16".
func (d *Device) ISA() string {
	if d.bf16 {
		return d.level.String() + " bf16"
	}
	return d.level.String()
}

// Warning says why the device uses less than was asked for; it is empty where it
// does not.
func (d *Device) Warning() string { return d.warning }

// Close waits for the running step, refuses waiting ones with [ErrClosed], and
// stops the workers. It may be called twice.
func (d *Device) Close() error {
	d.closeOnce.Do(func() {
		d.turns.close()
		d.pool.close()
	})
	return nil
}
