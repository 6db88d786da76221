package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/cuda/module"
)

// ErrLost is returned by whatever uses a device that this process cannot use any more,
// with the first failure. The process must end.
var ErrLost = device.ErrLost

// DeviceOptions say how a device is used.
type DeviceOptions struct {
	// MemoryUtilization is the share of a GPU's memory that may be in use, by others,
	// too: above 0, at most 1; 0 stands for [device.DefaultUtilization].
	MemoryUtilization float64
	// Portable leaves out the kernels for compute capability 9.0 alone: those for all
	// devices compute instead.
	Portable bool
	// Overlap has kernels launched while the one before them still runs, where the device
	// and its driver can do that. In groups none are: kernels there come behind those of other
	// GPUs, too, for which no such launch is known to wait.
	Overlap bool
}

// Device is a GPU with the kernels on it, or a group of them that compute together as
// tensor-parallel ranks, for all models and backends of the process.
type Device struct {
	id          string
	ranks       []*unit // the GPU of each rank
	units       []*unit // each once
	utilization float64
	// reach says that kernels of a rank read and write the memory of all others. Else what
	// ranks exchange is copied.
	reach bool

	planning sync.Mutex // between a look at the free memory and its allocation
	closed   chan struct{}
	watchers sync.WaitGroup // end with closed
}

// unit is a GPU with the kernels on it.
type unit struct {
	dev       *device.Device
	kernels   *module.Set
	functions map[string]uint64
}

// DeviceID is the name of the device that GPUs with these indexes are, such as "gpu:0", or
// "gpu:0+1" for two ranks.
func DeviceID(indexes []int) string {
	var names []string
	for _, i := range indexes {
		names = append(names, strconv.Itoa(i))
	}
	return "gpu:" + strings.Join(names, "+")
}

// OpenDevice takes the GPU of a driver with an index, and loads all kernels, which the driver
// compiles: up to some seconds where it has not done so before. The driver must outlive the
// device.
func OpenDevice(ctx context.Context, d driver.Driver, index int, o DeviceOptions) (*Device, error) {
	return OpenGroup(ctx, d, []int{index}, o)
}

// OpenGroup takes GPUs as one device, one for each tensor-parallel rank. The same GPU may have
// several ranks, which only makes it slower, for trials on a machine with one. GPUs of
// different compute capability are refused, since ranks must round alike.
func OpenGroup(ctx context.Context, d driver.Driver, indexes []int, o DeviceOptions) (*Device, error) {
	if o.MemoryUtilization == 0 {
		o.MemoryUtilization = device.DefaultUtilization
	}
	dev := &Device{id: DeviceID(indexes), utilization: o.MemoryUtilization, reach: true, closed: make(chan struct{})}
	if err := dev.open(ctx, d, indexes, module.Options{Portable: o.Portable, Overlap: o.Overlap && len(indexes) == 1}); err != nil {
		return nil, fmt.Errorf("open %s: %w", dev.id, errors.Join(err, dev.Close(context.WithoutCancel(ctx))))
	}
	return dev, nil
}

func (d *Device) open(ctx context.Context, drv driver.Driver, indexes []int, o module.Options) error {
	if !(d.utilization > 0 && d.utilization <= 1) {
		return fmt.Errorf("a memory utilization of %g is not above 0 and at most 1", d.utilization)
	}
	if n := len(indexes); n < 1 || n > kernels.MaxRanks {
		return fmt.Errorf("%d ranks, possible are 1 to %d", n, kernels.MaxRanks)
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(indexes)))
	opened, errs := make([]*unit, len(distinct)), make([]error, len(distinct))
	var wg sync.WaitGroup
	for i, index := range distinct { // each compiles kernels
		wg.Go(func() { opened[i], errs[i] = openUnit(ctx, drv, index, o) })
	}
	wg.Wait()
	for _, u := range opened {
		if u != nil {
			d.units = append(d.units, u)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, index := range indexes {
		d.ranks = append(d.ranks, opened[slices.Index(distinct, index)])
	}
	if err := d.connect(); err != nil {
		return err
	}
	if len(d.units) > 1 {
		for _, u := range d.units {
			d.watchers.Go(func() {
				select {
				case <-u.dev.Lost():
					d.spread()
				case <-d.closed:
				}
			})
		}
	}
	return nil
}

func openUnit(ctx context.Context, drv driver.Driver, index int, o module.Options) (*unit, error) {
	dev, err := device.Open(drv, index)
	if err != nil {
		return nil, err
	}
	set, err := module.Load(ctx, dev, module.Builtin(), o)
	if err != nil {
		return nil, errors.Join(err, dev.Close(context.WithoutCancel(ctx)))
	}
	return &unit{dev: dev, kernels: set, functions: set.Functions()}, nil
}

// connect lets all GPUs use each other's memory, where the machine allows that.
func (d *Device) connect() error {
	first := d.units[0].dev.Properties()
	for _, u := range d.units {
		if p := u.dev.Properties(); p.Major != first.Major || p.Minor != first.Minor {
			return fmt.Errorf("device %d (%s) has compute capability %d.%d and device %d (%s) %d.%d: ranks must round alike",
				d.units[0].dev.Index(), first.Name, first.Major, first.Minor, u.dev.Index(), p.Name, p.Major, p.Minor)
		}
		for _, o := range d.units {
			can, err := u.dev.ReachPeer(o.dev)
			if err != nil {
				return err
			}
			d.reach = d.reach && can
		}
	}
	return nil
}

// ID is the device's name, for example "gpu:0", or "gpu:0+1" for a group.
func (d *Device) ID() string { return d.id }

// Name is what the driver calls the GPU, and how many there are if several.
func (d *Device) Name() string {
	name := d.units[0].dev.Properties().Name
	if n := len(d.units); n > 1 {
		name += fmt.Sprintf(" x%d", n)
	}
	return name
}

// Ranks is how many tensor-parallel ranks the device has.
func (d *Device) Ranks() int { return len(d.ranks) }

// Reach reports whether the ranks use each other's memory. Where they do not, what they
// exchange goes through memory of the host, and decode steps are no graphs.
func (d *Device) Reach() bool { return d.reach }

// MemoryBytes is all memory of the device's GPUs.
func (d *Device) MemoryBytes() (n int64) {
	for _, u := range d.units {
		n += u.dev.Properties().MemoryBytes
	}
	return n
}

// Kernels are the kernels that were loaded, with what the driver's compiler made of them; of
// a group those of its first GPU.
func (d *Device) Kernels() []module.Kernel { return d.units[0].kernels.Kernels() }

// Targets are what the kernels that were loaded are made for, such as "sm_80" and "sm_90a".
func (d *Device) Targets() []string {
	var names []string
	for _, u := range d.units[0].kernels.Units() {
		names = append(names, u.Target.String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Lost is closed when the process cannot use the device any more, which one lost GPU of a
// group is enough for; Err says why.
func (d *Device) Lost() <-chan struct{} { return d.units[0].dev.Lost() }

// Err is what lost the device, nil while it is not.
func (d *Device) Err() error {
	for _, u := range d.units {
		if err := u.dev.Err(); err != nil {
			return err
		}
	}
	return nil
}

// spread gives up the other GPUs of a group when one is lost: their streams may wait for it
// for ever.
func (d *Device) spread() {
	if err := d.Err(); err != nil {
		d.abandon(err)
	}
}

// abandon gives up all GPUs.
func (d *Device) abandon(why error) {
	for _, u := range d.units {
		u.dev.Abandon(why)
	}
}

// Close gives the device back. Backends and weights must be closed before.
func (d *Device) Close(ctx context.Context) error {
	close(d.closed)
	d.watchers.Wait()
	var errs []error
	for _, u := range d.units {
		errs = append(errs, u.kernels.Close(), u.dev.Close(ctx))
	}
	return errors.Join(errs...)
}

// fit is how many KV blocks the plans of all ranks have room for, with the memory that is
// free now: the GPU with the least decides. The caller holds planning until the memory is
// allocated.
func (d *Device) fit(plan func(rank int) device.Plan) (blocks int, err error) {
	for i, u := range d.units {
		var all device.Plan
		for rank, on := range d.ranks {
			if on == u {
				all.Add(plan(rank))
			}
		}
		b, err := u.dev.Budget(d.utilization)
		if err != nil {
			return 0, err
		}
		n, err := all.Fit(b)
		if err != nil {
			return 0, err
		}
		if i == 0 || n < blocks {
			blocks = n
		}
	}
	return blocks, nil
}
