package gpu

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/module"
)

// ErrLost is returned by whatever uses a device that this process cannot use any more,
// with the first failure. The process must end.
var ErrLost = device.ErrLost

// DeviceOptions say how a device is used.
type DeviceOptions struct {
	// MemoryUtilization is the share of the device's memory that may be in use, by others,
	// too: above 0, at most 1; 0 stands for [device.DefaultUtilization].
	MemoryUtilization float64
}

// Device is a CUDA device with the kernels on it, for all models and backends of the
// process.
type Device struct {
	id          string
	dev         *device.Device
	kernels     *module.Set
	functions   map[string]uint64
	utilization float64

	planning sync.Mutex // between a look at the free memory and its allocation
}

// OpenDevice takes the device of a driver that is called "gpu:N" for the index N, and
// loads all kernels, which the driver compiles: up to some seconds where it has not done
// so before. The driver must outlive the device.
func OpenDevice(ctx context.Context, d driver.Driver, index int, o DeviceOptions) (*Device, error) {
	if o.MemoryUtilization == 0 {
		o.MemoryUtilization = device.DefaultUtilization
	}
	if !(o.MemoryUtilization > 0 && o.MemoryUtilization <= 1) {
		return nil, fmt.Errorf("open device %d: a memory utilization of %g is not above 0 and at most 1", index, o.MemoryUtilization)
	}
	dev, err := device.Open(d, index)
	if err != nil {
		return nil, err
	}
	set, err := module.Load(ctx, dev, module.Builtin(), module.Options{})
	if err != nil {
		return nil, errors.Join(err, dev.Close(context.WithoutCancel(ctx)))
	}
	return &Device{
		id: fmt.Sprintf("gpu:%d", index), dev: dev, kernels: set, functions: set.Functions(), utilization: o.MemoryUtilization,
	}, nil
}

// ID is the device's name, for example "gpu:0".
func (d *Device) ID() string { return d.id }

// Name is what the driver calls the device.
func (d *Device) Name() string { return d.dev.Properties().Name }

// Index is the device's number in its driver.
func (d *Device) Index() int { return d.dev.Index() }

// MemoryBytes is all memory of the device.
func (d *Device) MemoryBytes() int64 { return d.dev.Properties().MemoryBytes }

// Kernels are the kernels that were loaded, with what the driver's compiler made of them.
func (d *Device) Kernels() []module.Kernel { return d.kernels.Kernels() }

// Lost is closed when the process cannot use the device any more; Err says why.
func (d *Device) Lost() <-chan struct{} { return d.dev.Lost() }

// Err is what lost the device, nil while it is not.
func (d *Device) Err() error { return d.dev.Err() }

// Close gives the device back. Backends and weights must be closed before.
func (d *Device) Close(ctx context.Context) error {
	return errors.Join(d.kernels.Close(), d.dev.Close(ctx))
}

// fit is how many KV blocks a plan has room for, with the memory that is free now. The
// caller holds planning until the memory is allocated.
func (d *Device) fit(p device.Plan) (int, error) {
	b, err := d.dev.Budget(d.utilization)
	if err != nil {
		return 0, err
	}
	return p.Fit(b)
}
