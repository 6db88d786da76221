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

// ErrLost is returned, with the first failure, when this process can no longer use a
// device. The process must be replaced.
var ErrLost = device.ErrLost

// DeviceOptions configures the use of a device.
type DeviceOptions struct {
	// MemoryUtilization is the share of a GPU's memory that may be in use, including
	// other processes: above 0, at most 1. 0 means [device.DefaultUtilization].
	MemoryUtilization float64
	// Portable disables the kernels for compute capability 9.0 alone; the kernels for all
	// devices compute instead.
	Portable bool
	// Overlap launches kernels while the previous one still runs, if the device and its
	// driver support that. Groups never do: their kernels also follow kernels of other
	// GPUs, and such launches are not known to wait for those.
	Overlap bool
}

// Device is a GPU with the kernels loaded, or a group of GPUs that compute together as
// tensor-parallel ranks. All models and backends of the process share it.
type Device struct {
	id          string
	ranks       []*unit // the GPU of each rank
	units       []*unit // each once
	utilization float64
	// reach reports that kernels of a rank can access the memory of all other ranks.
	// Otherwise ranks exchange data by copies.
	reach bool

	planning sync.Mutex // held from reading the free memory until its allocation
	closed   chan struct{}
	watchers sync.WaitGroup // end with closed
}

// unit is a GPU with the kernels loaded.
type unit struct {
	dev       *device.Device
	kernels   *module.Set
	functions map[string]uint64
}

// DeviceID returns the name of the device made of the GPUs with these indexes, such as
// "gpu:0", or "gpu:0+1" for two ranks.
func DeviceID(indexes []int) string {
	var names []string
	for _, i := range indexes {
		names = append(names, strconv.Itoa(i))
	}
	return "gpu:" + strings.Join(names, "+")
}

// OpenDevice opens the GPU with an index and loads all kernels. The driver compiles them,
// which takes up to some seconds the first time. The driver must outlive the device.
func OpenDevice(ctx context.Context, d driver.Driver, index int, o DeviceOptions) (*Device, error) {
	return OpenGroup(ctx, d, []int{index}, o)
}

// OpenGroup opens GPUs as one device, one for each tensor-parallel rank. The same GPU may
// have several ranks; that is slower and only for trials on a machine with one GPU.
// OpenGroup refuses GPUs of different compute capability, because ranks must round alike.
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

// connect lets all GPUs access each other's memory, if the machine supports that.
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

// ID returns the device's name, for example "gpu:0", or "gpu:0+1" for a group.
func (d *Device) ID() string { return d.id }

// Name returns the driver's name of the GPU, and the number of GPUs if there are several.
func (d *Device) Name() string {
	name := d.units[0].dev.Properties().Name
	if n := len(d.units); n > 1 {
		name += fmt.Sprintf(" x%d", n)
	}
	return name
}

// Ranks returns the number of tensor-parallel ranks.
func (d *Device) Ranks() int { return len(d.ranks) }

// Reach reports whether the ranks access each other's memory. If not, their exchange goes
// through host memory, and decode steps are not graphs.
func (d *Device) Reach() bool { return d.reach }

// MemoryBytes returns the total memory of the device's GPUs.
func (d *Device) MemoryBytes() (n int64) {
	for _, u := range d.units {
		n += u.dev.Properties().MemoryBytes
	}
	return n
}

// Kernels returns the loaded kernels with the results of the driver's compiler; for a
// group those of its first GPU.
func (d *Device) Kernels() []module.Kernel { return d.units[0].kernels.Kernels() }

// Targets returns the architectures of the loaded kernels, such as "sm_80" and "sm_90a".
func (d *Device) Targets() []string {
	var names []string
	for _, u := range d.units[0].kernels.Units() {
		names = append(names, u.Target.String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Lost is closed when the process can no longer use the device. One lost GPU of a group
// suffices. Err returns the reason.
func (d *Device) Lost() <-chan struct{} { return d.units[0].dev.Lost() }

// Err returns the failure that lost the device, or nil.
func (d *Device) Err() error {
	for _, u := range d.units {
		if err := u.dev.Err(); err != nil {
			return err
		}
	}
	return nil
}

// spread abandons the other GPUs of a group when one is lost, because their streams may
// wait for it forever.
func (d *Device) spread() {
	if err := d.Err(); err != nil {
		d.abandon(err)
	}
}

// abandon marks all GPUs as lost.
func (d *Device) abandon(why error) {
	for _, u := range d.units {
		u.dev.Abandon(why)
	}
}

// Close releases the device. Backends and weights must be closed before.
func (d *Device) Close(ctx context.Context) error {
	close(d.closed)
	d.watchers.Wait()
	var errs []error
	for _, u := range d.units {
		errs = append(errs, u.kernels.Close(), u.dev.Close(ctx))
	}
	return errors.Join(errs...)
}

// fit returns how many KV blocks the plans of all ranks have room for, with the memory
// that is free now. The GPU with the least memory decides. The caller holds planning
// until it has allocated the memory.
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
