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
	node  int  // NUMA node of its memory, negative: any
	// int8Tiles says that quantized weights meet many rows on tiles.
	int8Tiles bool
	pool      *pool
	turns     turns

	warning   string
	closeOnce sync.Once
}

// maxCores bounds the workers of a device.
const maxCores = 1024

// ISAVariable is the environment variable from which [NewDevice] takes the set of
// instructions.
const ISAVariable = "DYNAMOD_CPU_ISA"

// NewDevice starts a device with so many cores and with what the variables
// DYNAMOD_CPU_ISA and DYNAMOD_CPU_ACTIVATIONS name, or with all that the machine has.
// Instructions that cannot be used stand for portable, and a precision that cannot be
// used for f32, which always work; see [OpenDevice].
func NewDevice(id string, cores int) *Device {
	level, warning, err := parseLevel(os.Getenv(ISAVariable))
	if err != nil {
		level = kernel.Portable
	}
	d := newDevice(id, cores, level)
	d.bf16, _ = parseActivations(os.Getenv(ActivationsVariable), level)
	d.warning = warning
	d.checkInt8Tiles(kernel.CheckInt8)
	return d
}

// DeviceOptions say how a device computes.
type DeviceOptions struct {
	// Cores is the number of workers; below 1 stands for all CPUs of the machine.
	Cores int
	// ISA is the set of instructions: the name of a [kernel.Level], or auto or empty for
	// the best of the machine.
	ISA string
	// Activations is their precision where they meet weights of bf16: f32, bf16 where
	// the machine has AVX512_BF16, AMX or FEAT_BF16, or auto or empty for the faster one.
	Activations string
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
// lacks, and with [ErrActivations] for such a precision.
func OpenDevice(id string, opts DeviceOptions) (*Device, error) {
	level, warning, err := parseLevel(opts.ISA)
	if err != nil {
		return nil, fmt.Errorf("start device %s: %w", id, err)
	}
	bf16, err := parseActivations(opts.Activations, level)
	if err != nil {
		return nil, fmt.Errorf("start device %s: %w", id, err)
	}
	d := &Device{id: id, cores: workers(opts.Cores), level: level, bf16: bf16, node: -1, warning: warning, int8Tiles: level.Int8Tiles()}
	d.checkInt8Tiles(kernel.CheckInt8)
	d.pool = newBoundPool(d.cores, opts.CPUs)
	if len(opts.CPUs) > 0 && opts.Node >= 0 {
		d.node = opts.Node
	}
	return d, nil
}

// parseLevel is kernel.Parse, and the level below with a warning where tiles do not
// compute what they should.
func parseLevel(isa string) (level kernel.Level, warning string, err error) {
	level, err = kernel.Parse(isa)
	if err == nil && level == kernel.AMX {
		if err := level.CheckBF16(); err != nil {
			return kernel.AVX512, fmt.Sprintf("AMX is not used: %v", err), nil
		}
	}
	return level, "", err
}

// checkInt8Tiles gives tiles of bytes up, with a warning, where they do not compute what
// they should. Vectors have the same bits.
func (d *Device) checkInt8Tiles(check func() error) {
	if !d.int8Tiles {
		return
	}
	if err := check(); err != nil {
		d.int8Tiles = false
		d.warning = fmt.Sprintf("AMX is not used for quantized weights: %v", err)
	}
}

// newDevice starts a device that keeps activations in float32.
func newDevice(id string, cores int, level kernel.Level) *Device {
	d := &Device{id: id, cores: workers(cores), level: level, node: -1, int8Tiles: level.Int8Tiles()}
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

// ISA is the set of instructions that the device uses and, unless it is f32, the
// precision of activations: "avx2", "avx512 bf16".
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
