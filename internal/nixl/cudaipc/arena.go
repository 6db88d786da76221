package cudaipc

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/dynctl/dynctl/internal/nixl"
)

// Arena is memory of a device, alone in its allocation, to be registered as VRAM.
type Arena struct {
	devices *Devices
	device  int
	size    int64
	address uint64
	handle  [HandleBytes]byte
	adopted bool // the allocation is somebody else's

	mu       sync.Mutex
	closed   bool
	lent     int           // to peers that may have it open
	returned chan struct{} // closed when lent falls to 0; nil while nobody waits
}

var _ nixl.DeviceCopier = (*Arena)(nil)

// granule is the unit of allocations, in bytes. The driver puts smaller ones
// together, and a handle gives away all that is in the same piece.
const granule = 2 << 20

// NewArena allocates size bytes on a device, rounded up to 2 MiB in the driver but not
// in Size.
func (ds *Devices) NewArena(device int, size int64) (*Arena, error) {
	if device < 0 || device >= len(ds.uuids) || size <= 0 || size > 1<<46 {
		return nil, fmt.Errorf("allocate %d bytes on device %d of %d: %w", size, device, len(ds.uuids), nixl.ErrInvalidParam)
	}
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if ds.closed {
		return nil, fmt.Errorf("allocate on device %d: devices are closed: %w", device, nixl.ErrCanceled)
	}
	address, err := ds.driver.MemAlloc(device, (size+granule-1)&^(granule-1))
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes on device %d: %w: %w", size, device, err, nixl.ErrBackend)
	}
	a, err := ds.arena(device, address, size)
	if err != nil {
		_ = ds.driver.MemFree(device, address) // err says what is wrong
		return nil, err
	}
	return a, nil
}

// Adopt makes an arena of an allocation of the driver that begins at address, such as the
// KV pool of an engine, whose owner frees it after Close of the arena. The allocation must be
// of whole multiples of 2 MiB, of which the arena is the first size bytes: peers can reach
// all of it.
func (ds *Devices) Adopt(device int, address uint64, size int64) (*Arena, error) {
	if device < 0 || device >= len(ds.uuids) || address == 0 || size <= 0 || size > 1<<46 {
		return nil, fmt.Errorf("adopt %d bytes at %#x on device %d of %d: %w", size, address, device, len(ds.uuids), nixl.ErrInvalidParam)
	}
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if ds.closed {
		return nil, fmt.Errorf("adopt memory of device %d: devices are closed: %w", device, nixl.ErrCanceled)
	}
	a, err := ds.arena(device, address, size)
	if err == nil {
		a.adopted = true
	}
	return a, err
}

// arena makes an arena of an allocation, with the lock held.
func (ds *Devices) arena(device int, address uint64, size int64) (*Arena, error) {
	handle, err := ds.driver.IpcGetMemHandle(device, address)
	if err != nil {
		return nil, fmt.Errorf("memory handle on device %d, which vGPU and some MIG modes refuse: %w: %w", device, err, nixl.ErrNotSupported)
	}
	ds.arenas++
	return &Arena{devices: ds, device: device, size: size, address: address, handle: handle}, nil
}

// Bytes returns nil: the host cannot address the memory.
func (a *Arena) Bytes() []byte { return nil }

// Size is the number of bytes.
func (a *Arena) Size() int64 { return a.size }

// Device is the index of the device in this process.
func (a *Arena) Device() int { return a.device }

// Address is the memory's, on the device.
func (a *Arena) Address() uint64 { return a.address }

// ReadAt copies to the host and returns when the bytes are there.
func (a *Arena) ReadAt(p []byte, off int64) (int, error) {
	return a.host(len(p), off, func(l *lane, at uint64) error { return l.driver.MemcpyDtoHAsync(l.device, p, at, l.stream) })
}

// WriteAt copies from the host and returns when the bytes are on the device.
func (a *Arena) WriteAt(p []byte, off int64) (int, error) {
	return a.host(len(p), off, func(l *lane, at uint64) error { return l.driver.MemcpyHtoDAsync(l.device, at, p, l.stream) })
}

// CopyFrom implements [nixl.DeviceCopier] for arenas of the same devices.
func (a *Arena) CopyFrom(off uint64, src nixl.DeviceMemory, srcOff, n uint64) error {
	from, ok := src.(*Arena)
	switch {
	case !ok || from.devices != a.devices:
		return fmt.Errorf("%T is memory of another driver: %w", src, nixl.ErrNotSupported)
	case n > uint64(a.size) || off > uint64(a.size)-n || n > uint64(from.size) || srcOff > uint64(from.size)-n:
		return fmt.Errorf("%d bytes at %d of %d to %d of %d: %w", n, srcOff, from.size, off, a.size, nixl.ErrInvalidParam)
	case n == 0:
		return nil
	}
	_, err := a.devices.run(a.device, 1, func(l *lane, _ int) (uint64, error) {
		return n, l.driver.MemcpyDtoDAsync(l.device, a.address+off, from.address+srcOff, int64(n), l.stream)
	})
	return err
}

func (a *Arena) host(n int, off int64, begin func(l *lane, at uint64) error) (int, error) {
	if off < 0 || off > a.size || int64(n) > a.size-off {
		return 0, fmt.Errorf("%d bytes at %d of an arena of %d: %w", n, off, a.size, io.ErrUnexpectedEOF)
	}
	if n == 0 {
		return 0, nil
	}
	moved, err := a.devices.run(a.device, 1, func(l *lane, _ int) (uint64, error) { return uint64(n), begin(l, a.address+uint64(off)) })
	return int(moved), err
}

// lend counts a peer that may open the memory, until the returned function is called.
func (a *Arena) lend() (returned func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, fmt.Errorf("arena is closed: %w", nixl.ErrNotFound)
	}
	a.lent++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.lent--; a.lent == 0 && a.returned != nil {
			close(a.returned)
			a.returned = nil
		}
	}, nil
}

// Close frees the memory, or gives it back to its owner if it was adopted, when all peers
// have closed it, or have ended: freeing it before would pull it from under their copies. The region must be deregistered, which
// makes the peers close it. The error is that of ctx, with nothing freed, if a peer
// does not, such as one whose process is stopped; Close may be called again. Closing
// twice is not an error.
func (a *Arena) Close(ctx context.Context) error {
	for {
		a.mu.Lock()
		if a.closed {
			a.mu.Unlock()
			return nil
		}
		if a.lent == 0 {
			a.closed = true
			a.mu.Unlock()
			return a.free()
		}
		if a.returned == nil {
			a.returned = make(chan struct{})
		}
		lent, returned := a.lent, a.returned
		a.mu.Unlock()
		select {
		case <-returned:
		case <-ctx.Done():
			return fmt.Errorf("close arena: %d peers have it open: %w", lent, context.Cause(ctx))
		}
	}
}

func (a *Arena) free() error {
	a.devices.mu.Lock()
	defer a.devices.mu.Unlock()
	a.devices.arenas--
	if a.adopted {
		return nil
	}
	return a.devices.driver.MemFree(a.device, a.address)
}
