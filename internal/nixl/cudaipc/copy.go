//go:build linux

package cudaipc

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/nixl"
)

// What is copied inside the fence at a time, in bytes: long enough for a launch and the
// wait for its event, some 10 µs, not to matter.
const (
	hostPiece   = 1 << 20  // by the processor; to or from a device 0.02 ms
	devicePiece = 32 << 20 // about 0.02 ms within a device, 0.6 ms over PCIe 5
)

// remote is an allocation of the peer, open on the device it lies on.
type remote struct {
	devices *Devices
	key     openKey
	address uint64
	size    uint64
}

func (r *remote) PieceBytes() uint64 { return devicePiece }

func (r *remote) Close() { _ = r.devices.release(r.key) }

// Copy exchanges bytes with host memory of this process.
func (r *remote) Copy(op nixl.Op, local [][]byte, at []uint64) (uint64, error) {
	return r.devices.run(r.key.device, len(local), func(l *lane, i int) (n uint64, err error) {
		n = uint64(len(local[i]))
		if err := r.inside(at[i], n); err != nil {
			return 0, err
		}
		if op == nixl.Write {
			return n, l.driver.MemcpyHtoDAsync(l.device, r.address+at[i], local[i], l.stream)
		}
		return n, l.driver.MemcpyDtoHAsync(l.device, local[i], r.address+at[i], l.stream)
	})
}

// CopyDevice exchanges bytes with device memory of this process.
func (r *remote) CopyDevice(op nixl.Op, local []nixl.DevicePiece, at []uint64) (uint64, error) {
	return r.devices.run(r.key.device, len(local), func(l *lane, i int) (uint64, error) {
		here, err := arenaAddress(local[i])
		if err != nil {
			return 0, err
		}
		n := local[i].Len
		if err := r.inside(at[i], n); err != nil {
			return 0, err
		}
		dst, src := r.address+at[i], here
		if op == nixl.Read {
			dst, src = src, dst
		}
		return n, l.driver.MemcpyDtoDAsync(l.device, dst, src, int64(n), l.stream)
	})
}

func (r *remote) inside(at, n uint64) error {
	if n > r.size || at > r.size-n {
		return fmt.Errorf("%d bytes at %d of %d: %w", n, at, r.size, nixl.ErrInvalidParam)
	}
	return nil
}

func arenaAddress(p nixl.DevicePiece) (uint64, error) {
	a, ok := p.Memory.(*Arena)
	if !ok {
		return 0, fmt.Errorf("%T is memory of another driver: %w", p.Memory, nixl.ErrNotSupported)
	}
	return a.address + p.Off, nil
}

// Copy moves bytes between host memories.
func (m *mapped) Copy(op nixl.Op, local [][]byte, at []uint64) (n uint64, err error) {
	for i, l := range local {
		theirs := m.mem[at[i] : at[i]+uint64(len(l))]
		if op == nixl.Write {
			copy(theirs, l)
		} else {
			copy(l, theirs)
		}
		n += uint64(len(l))
	}
	return n, nil
}

// CopyDevice moves bytes between a device of this process and the peer's host memory.
func (m *mapped) CopyDevice(op nixl.Op, local []nixl.DevicePiece, at []uint64) (moved uint64, err error) {
	for from := 0; from < len(local); { // a run on one device at a time
		device, to := local[from].Memory.Device(), from+1
		for to < len(local) && local[to].Memory.Device() == device {
			to++
		}
		n, err := m.devices.run(device, to-from, func(l *lane, i int) (uint64, error) {
			p, theirs := local[from+i], m.mem[at[from+i]:]
			here, err := arenaAddress(p)
			if err != nil {
				return 0, err
			}
			if op == nixl.Write {
				return p.Len, l.driver.MemcpyDtoHAsync(l.device, theirs[:p.Len], here, l.stream)
			}
			return p.Len, l.driver.MemcpyHtoDAsync(l.device, here, theirs[:p.Len], l.stream)
		})
		moved += n
		if err != nil {
			return moved, err
		}
		from = to
	}
	return moved, nil
}

// unopened is memory of the peer that could not be opened.
type unopened struct{ err error }

func (u unopened) Copy(nixl.Op, [][]byte, []uint64) (uint64, error) { return 0, u.err }

func (u unopened) CopyDevice(nixl.Op, []nixl.DevicePiece, []uint64) (uint64, error) {
	return 0, u.err
}

func (u unopened) PieceBytes() uint64 { return hostPiece }

func (u unopened) Close() {}
