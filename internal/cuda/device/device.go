package device

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
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
	ErrSealed = errors.New("device memory cannot be allocated after the start")
)

// Device is a GPU. What is made in its own Scope lives as long as it.
type Device struct {
	*Scope
	driver     driver.Driver
	index      int
	properties driver.Properties
	exec       *executor
	lost       chan struct{} // closed with err set

	mu     sync.Mutex // also of what its scopes have
	err    error      // what lost the device
	scopes []*Scope   // its own is the first
}

// Open takes a device of a driver, and makes its context, which takes up to a second.
// The driver must outlive the device. A device that forbids to compute is refused.
func Open(d driver.Driver, index int) (*Device, error) {
	p, err := d.DeviceProperties(index)
	if err != nil {
		return nil, fmt.Errorf("open device %d: %w", index, err)
	}
	if p.ComputeProhibited {
		return nil, fmt.Errorf("open device %d (%s): its compute mode prohibits processes: run nvidia-smi -i %d -c DEFAULT", index, p.Name, index)
	}
	if _, _, err := d.MemGetInfo(index); err != nil {
		return nil, fmt.Errorf("open device %d (%s): %w", index, p.Name, err)
	}
	dev := &Device{driver: d, index: index, properties: p, lost: make(chan struct{})}
	dev.Scope = &Scope{d: dev}
	dev.scopes = []*Scope{dev.Scope}
	dev.exec = startExecutor(dev)
	return dev, nil
}

// Index is the device's number in its driver.
func (d *Device) Index() int { return d.index }

// Properties returns the device's fixed properties.
func (d *Device) Properties() driver.Properties { return d.properties }

// Driver is for what this package does not wrap, such as modules. Errors of its calls go
// through [Device.Check].
func (d *Device) Driver() driver.Driver { return d.driver }

// Lost is closed when the device is lost.
func (d *Device) Lost() <-chan struct{} { return d.lost }

// Err returns the error that lost the device, nil while the device works.
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
	case d.Scope.closed:
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

// Close closes all scopes: it waits until all work has ended, at most until ctx ends, and
// frees everything that was made on the device. While work still runs nothing is freed:
// the error says so, and Close may be called again. Of a lost device nothing can be freed.
// Nobody may use the device, or what was made on it, at the same time or later.
func (d *Device) Close(ctx context.Context) error {
	d.mu.Lock()
	d.Scope.closed = true
	scopes := slices.Clone(d.scopes)
	d.mu.Unlock()
	d.exec.stop()
	if d.Err() != nil {
		return nil // the reason was told to whoever met it
	}
	for _, s := range scopes {
		if err := s.drain(ctx); err != nil {
			return err
		}
	}
	var errs []error
	for _, s := range scopes {
		errs = append(errs, s.free())
	}
	return errors.Join(errs...)
}

// poll asks until there is an answer: at first without a pause, since most work ends in
// microseconds, then in intervals that are a small part of what was waited for already.
func poll(ctx context.Context, ask func() (bool, error)) error {
	const (
		busy  = 20 * time.Microsecond
		part  = 16
		least = 5 * time.Microsecond
		most  = 200 * time.Microsecond
	)
	begin := time.Now()
	for {
		if done, err := ask(); done || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		waited := time.Since(begin)
		if waited < busy {
			runtime.Gosched()
			continue
		}
		pause(min(max(waited/part, least), most))
	}
}
