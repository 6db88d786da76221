package driver

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/dynctl/dynctl/internal/dynlib"
)

// CanAccessPeer implements Driver.
func (d *CUDA) CanAccessPeer(device, peer int) (bool, error) {
	if err := errors.Join(d.known(device), d.known(peer)); err != nil {
		return false, err
	}
	if d.fn.deviceCanAccessPeer == 0 || d.fn.ctxEnablePeerAccess == 0 {
		return false, nil
	}
	var can int32
	err := d.call("cuDeviceCanAccessPeer", device,
		dynlib.Call(d.fn.deviceCanAccessPeer, uintptr(unsafe.Pointer(&can)), uintptr(d.devices[device].device), uintptr(d.devices[peer].device)))
	return can != 0, err
}

// EnablePeerAccess implements Driver.
func (d *CUDA) EnablePeerAccess(device, peer int) error {
	if err := d.known(peer); err != nil {
		return err
	}
	if d.fn.ctxEnablePeerAccess == 0 {
		return missing("cuCtxEnablePeerAccess")
	}
	other, err := d.retain(peer)
	if err != nil {
		return err
	}
	if err := d.enter(device); err != nil {
		return err
	}
	defer leave()
	r := dynlib.Call(d.fn.ctxEnablePeerAccess, other, 0)
	if result(r) == PeerEnabled {
		return nil
	}
	return d.call("cuCtxEnablePeerAccess", device, r)
}

// MemcpyPeerAsync implements Driver.
func (d *CUDA) MemcpyPeerAsync(device, dstDevice int, dst uint64, srcDevice int, src uint64, n int64, stream uint64) error {
	if err := errors.Join(d.known(dstDevice), d.known(srcDevice), handle("address", src)); err != nil {
		return err
	}
	if d.fn.memcpyPeer == 0 {
		return missing("cuMemcpyPeerAsync")
	}
	to, err := d.retain(dstDevice)
	if err != nil {
		return err
	}
	from, err := d.retain(srcDevice)
	if err != nil {
		return err
	}
	return d.inStream("cuMemcpyPeerAsync", device, stream, n, dst, func() uintptr {
		return dynlib.Call(d.fn.memcpyPeer, uintptr(dst), to, uintptr(src), from, uintptr(n), uintptr(stream))
	})
}

// missing is the error about an optional function.
func missing(name string) error {
	return fmt.Errorf("%w: it has no %s: update NVIDIA's driver", ErrTooOld, name)
}
