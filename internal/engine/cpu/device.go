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
	bf16  bool // activations are rounded to bf16 for products with weights of bf16
	node  int  // NUMA node of its memory; negative for any
	// int8Tiles reports that many rows are multiplied with quantized weights on tiles.
	int8Tiles bool
	pool      *pool
	turns     turns

	warning   string
	closeOnce sync.Once
}

// maxCores bounds the workers of a device.
const maxCores = 1024

// ISAVariable is the environment variable that selects the instruction set of
// [NewDevice].
const ISAVariable = "DYNAMOD_CPU_ISA"

// NewDevice starts a device with the given number of cores. The variables DYNAMOD_CPU_ISA
// and DYNAMOD_CPU_ACTIVATIONS select instruction set and precision; without them it uses
// all that the machine has. If the machine cannot use an instruction set it falls back to
// portable, and from an unusable precision to f32, which always work. [OpenDevice]
// returns an error instead.
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

// DeviceOptions configures how a device computes.
type DeviceOptions struct {
	// Cores is the number of workers; below 1 means all CPUs of the machine.
	Cores int
	// ISA is the instruction set: the name of a [kernel.Level]. auto or empty means the
	// best of the machine.
	ISA string
	// Activations is the precision of activations for products with weights of bf16: f32,
	// or bf16 where the machine has AVX512_BF16, AMX or FEAT_BF16. auto or empty means
	// the faster one.
	Activations string
	// CPUs restricts all workers to these CPUs; nil lets the system place them.
	// GOMAXPROCS must exceed the number of all bound workers by a few, because those do
	// not make room for each other.
	CPUs []int
	// Node is the NUMA node of packed weights and KV blocks. It is ignored without CPUs.
	// Below 0, pages come from the node of the thread that first writes them.
	Node int
}

// OpenDevice starts a device with the name id, for example "cpu:0". Steps run on the
// calling goroutine and Cores-1 goroutines of the device. It fails with [kernel.ErrLevel]
// for an instruction set that does not exist or that the machine lacks, and with
// [ErrActivations] for such a precision.
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

// parseLevel does what kernel.Parse does. If the machine's tiles compute wrong results,
// it returns the level below and a warning.
func parseLevel(isa string) (level kernel.Level, warning string, err error) {
	level, err = kernel.Parse(isa)
	if err == nil && level == kernel.AMX {
		if err := level.CheckBF16(); err != nil {
			return kernel.AVX512, fmt.Sprintf("AMX is not used: %v", err), nil
		}
	}
	return level, "", err
}

// checkInt8Tiles disables int8 tiles, with a warning, if they compute wrong results.
// Vector instructions give the same bits.
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

// workers returns the number of workers for the given cores.
func workers(cores int) int {
	if cores < 1 {
		cores = runtime.NumCPU()
	}
	return min(cores, maxCores)
}

// ID returns the device's name, for example "cpu:0".
func (d *Device) ID() string { return d.id }

// Name returns a description for users: "cpu 2c".
func (d *Device) Name() string { return fmt.Sprintf("cpu %dc", d.cores) }

// Cores returns the number of workers.
func (d *Device) Cores() int { return d.cores }

// ISA returns the instruction set in use and, unless it is f32, the precision of
// activations: "avx2", "avx512 bf16".
func (d *Device) ISA() string {
	if d.bf16 {
		return d.level.String() + " bf16"
	}
	return d.level.String()
}

// Warning returns why the device uses less than was asked for, or "".
func (d *Device) Warning() string { return d.warning }

// Close waits for the running step, refuses waiting ones with [ErrClosed], and stops the
// workers. Further calls do nothing.
func (d *Device) Close() error {
	d.closeOnce.Do(func() {
		d.turns.close()
		d.pool.close()
	})
	return nil
}
