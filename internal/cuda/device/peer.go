package device

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// ReachPeer lets kernels of the device use memory of another one of the same driver, and
// reports whether the machine allows it.
func (d *Device) ReachPeer(o *Device) (bool, error) {
	if d.index == o.index {
		return true, nil
	}
	can, err := d.driver.CanAccessPeer(d.index, o.index)
	if err == nil && can {
		err = d.driver.EnablePeerAccess(d.index, o.index)
	}
	if err := d.Check(err); err != nil {
		return false, fmt.Errorf("access of device %d to the memory of device %d: %w", d.index, o.index, err)
	}
	return can, nil
}

// CopyFrom copies from memory of another device to this stream's one, through the host where
// neither reaches the other; the sizes must be the same.
func (s *Stream) CopyFrom(dst Region, from *Device, src Region) error {
	if dst.Bytes != src.Bytes {
		return fmt.Errorf("%w: copy of %d bytes into %d", driver.ErrInvalid, src.Bytes, dst.Bytes)
	}
	if s.d.index == from.index {
		return s.Copy(dst, src)
	}
	return s.d.Check(s.d.driver.MemcpyPeerAsync(s.d.index, s.d.index, dst.Address, from.index, src.Address, src.Bytes, s.handle))
}
