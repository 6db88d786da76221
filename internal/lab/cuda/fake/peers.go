package fake

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// CanAccessPeer implements driver.Driver.
func (d *Driver) CanAccessPeer(device, peer int) (bool, error) {
	if err := d.pair("cuDeviceCanAccessPeer", device, peer); err != nil {
		return false, err
	}
	defer d.mu.Unlock()
	return device != peer && !d.devices[device].alone && !d.devices[peer].alone, nil
}

// EnablePeerAccess implements driver.Driver.
func (d *Driver) EnablePeerAccess(device, peer int) error {
	const call = "cuCtxEnablePeerAccess"
	if err := d.pair(call, device, peer); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if device == peer || d.devices[device].alone || d.devices[peer].alone {
		return d.fault(call, device, driver.PeerUnsupported, "of device %d", peer)
	}
	d.devices[device].peers[peer] = true
	return nil
}

// MemcpyPeerAsync implements driver.Driver.
func (d *Driver) MemcpyPeerAsync(device, dstDevice int, dst uint64, srcDevice int, src uint64, n int64, stream uint64) error {
	const call = "cuMemcpyPeerAsync"
	if err := d.pair(call, dstDevice, srcDevice); err != nil {
		return err
	}
	to, from := d.find("", dst, n), d.find("", src, n)
	d.mu.Unlock()
	if to != nil && to.device != dstDevice || from != nil && from.device != srcDevice {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.fault(call, device, driver.InvalidValue, "%s and %s are not of the devices %d and %d", from, to, srcDevice, dstDevice)
	}
	return d.enqueue(call, device, stream, work{
		what: fmt.Sprintf("copy of %d bytes from %#x of device %d to %#x of device %d", n, src, srcDevice, dst, dstDevice), names: []span{{address: dst, n: n}, {address: src, n: n}},
		run: func(c *Call) { copy(c.Write(dst, n), c.Read(src, n)) },
	})
}

// pair is enter for a call on a device and a peer, of which neither may be lost.
func (d *Driver) pair(call string, device, peer int) error {
	if err := d.enter(call, peer); err != nil {
		return err
	}
	d.mu.Unlock()
	return d.enter(call, device)
}
