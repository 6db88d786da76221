package driver

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/dynctl/dynctl/internal/dynlib"
)

// CUDA is the driver of this machine.
type CUDA struct {
	version Version
	fn      functions
	devices []context
}

var _ Driver = (*CUDA)(nil)

// context is the primary context of a device, made at its first use.
type context struct {
	device int32 // CUdevice

	mu sync.Mutex
	h  uintptr // CUcontext, 0 before the first use
}

// Version implements Driver.
func (d *CUDA) Version() Version { return d.version }

// DeviceCount implements Driver.
func (d *CUDA) DeviceCount() int { return len(d.devices) }

// known refuses indices of devices that are not there.
func (d *CUDA) known(device int) error {
	if device < 0 || device >= len(d.devices) {
		return fmt.Errorf("%w: no device %d, there are %d", ErrInvalid, device, len(d.devices))
	}
	return nil
}

// enter makes the context of a device current on this thread, which the goroutine keeps
// until it calls leave.
func (d *CUDA) enter(device int) error {
	if err := d.known(device); err != nil {
		return err
	}
	h, err := d.retain(device)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := d.call("cuCtxSetCurrent", device, dynlib.Call(d.fn.ctxSetCurrent, h)); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	return nil
}

func leave() { runtime.UnlockOSThread() }

// retain makes the context, which takes memory and up to a second, once.
func (d *CUDA) retain(device int) (uintptr, error) {
	c := &d.devices[device]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.h != 0 {
		return c.h, nil
	}
	var h uintptr
	if err := d.call("cuDevicePrimaryCtxRetain", device, dynlib.Call(d.fn.primaryCtxRetain, uintptr(unsafe.Pointer(&h)), uintptr(c.device))); err != nil {
		return 0, err
	}
	c.h = h
	return h, nil
}

// Close implements Driver.
func (d *CUDA) Close() error {
	var errs []error
	for i := range d.devices {
		c := &d.devices[i]
		c.mu.Lock()
		if c.h != 0 {
			errs = append(errs, d.call("cuDevicePrimaryCtxRelease", i, dynlib.Call(d.fn.primaryCtxRelease, uintptr(c.device))))
			c.h = 0
		}
		c.mu.Unlock()
	}
	return errors.Join(errs...)
}
