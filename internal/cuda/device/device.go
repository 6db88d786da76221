package device

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// Why a call was refused.
var (
	// ErrLost: the device cannot be used by this process any more; the text has the first
	// failure. The process must end.
	ErrLost = errors.New("the device is lost")
	// ErrClosed: the device was closed.
	ErrClosed = errors.New("the device is closed")
	// ErrSealed: memory was asked for after [Device.Seal].
	ErrSealed = errors.New("no memory is allocated after the start")
)

// Device is a GPU.
type Device struct {
	driver     driver.Driver
	index      int
	properties driver.Properties
	exec       *executor
	lost       chan struct{} // closed with err set

	mu      sync.Mutex
	err     error // what lost the device
	closed  bool
	sealed  bool
	streams []*Stream
	events  []*Event
	arenas  []*Arena
	pinned  []*Pinned
}

// Open takes a device of a driver, and makes its context, which takes up to a second.
// The driver must outlive the device. A device that forbids to compute is refused.
func Open(d driver.Driver, index int) (*Device, error) {
	p, err := d.DeviceProperties(index)
	if err != nil {
		return nil, fmt.Errorf("open device %d: %w", index, err)
	}
	if p.ComputeProhibited {
		return nil, fmt.Errorf("open device %d (%s): its compute mode allows no process: nvidia-smi -i %d -c DEFAULT changes that", index, p.Name, index)
	}
	if _, _, err := d.MemGetInfo(index); err != nil {
		return nil, fmt.Errorf("open device %d (%s): %w", index, p.Name, err)
	}
	dev := &Device{driver: d, index: index, properties: p, lost: make(chan struct{})}
	dev.exec = startExecutor(dev)
	return dev, nil
}

// Index is the device's number in its driver.
func (d *Device) Index() int { return d.index }

// Properties are what the device is.
func (d *Device) Properties() driver.Properties { return d.properties }

// Driver is for what this package does not wrap, such as modules. Errors of its calls go
// through [Device.Check].
func (d *Device) Driver() driver.Driver { return d.driver }

// Lost is closed when the device is lost.
func (d *Device) Lost() <-chan struct{} { return d.lost }

// Err is what lost the device, nil while it is not.
func (d *Device) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Check looks at what a call of the driver returned, and ends the device if that means
// that it is lost. It returns err, or ErrLost with the first failure.
func (d *Device) Check(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if driver.IsContextLost(err) {
		d.loseLocked(err)
	}
	if d.err != nil && err != nil {
		return d.err
	}
	return err
}

// Abandon ends the device for a reason that the driver does not report, such as a kernel
// that hangs.
func (d *Device) Abandon(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.loseLocked(why)
}

func (d *Device) loseLocked(why error) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s: %w", ErrLost, d.properties.Name, why)
		close(d.lost)
	}
}

// usable refuses calls on a device that is lost or closed, with the lock held.
func (d *Device) usable() error {
	switch {
	case d.err != nil:
		return d.err
	case d.closed:
		return ErrClosed
	}
	return nil
}

// Run runs f on the device's thread, after what was given to it before, and returns its
// error. If ctx ends before f began, f never runs. f must not wait for another Run.
func (d *Device) Run(ctx context.Context, f func() error) error {
	d.mu.Lock()
	err := d.usable()
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return d.exec.run(ctx, f)
}

// Close waits until all work has ended, at most until ctx ends, and frees everything that
// was made through the device. While work still runs nothing is freed: the error says
// so, and Close may be called again. Of a lost device nothing can be freed. Nobody may
// use the device, or what was made through it, at the same time or later.
func (d *Device) Close(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.exec.stop()
	if d.Err() != nil {
		return nil // the reason was told to whoever met it
	}
	d.mu.Lock()
	streams := d.streams
	d.mu.Unlock()
	for _, s := range streams {
		if err := s.drain(ctx); err != nil {
			if d.Err() != nil {
				return err
			}
			return fmt.Errorf("close device %d: nothing is freed: %w", d.index, err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, s := range d.streams {
		errs = append(errs, d.driver.EventDestroy(d.index, s.end), d.driver.StreamDestroy(d.index, s.handle))
	}
	for _, e := range d.events {
		errs = append(errs, d.driver.EventDestroy(d.index, e.handle))
	}
	for _, a := range d.arenas {
		errs = append(errs, d.driver.MemFree(d.index, a.base))
	}
	for _, p := range d.pinned {
		errs = append(errs, d.driver.MemFreeHost(d.index, p.mem))
	}
	d.streams, d.events, d.arenas, d.pinned = nil, nil, nil, nil
	return errors.Join(errs...)
}

// poll asks until there is an answer: at first without a pause, since most work ends in
// microseconds, then in growing intervals.
func poll(ctx context.Context, ask func() (bool, error)) error {
	const most = 200 * time.Microsecond
	pause := time.Microsecond
	for n := 0; ; n++ {
		if done, err := ask(); done || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if n < 16 {
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, most)
	}
}
