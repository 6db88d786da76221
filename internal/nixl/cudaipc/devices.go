package cudaipc

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/nixl"
)

// Devices are the CUDA devices of a process: its arenas, what it has opened of other
// processes, and streams to copy on. Its agents share it, because a handle can be
// opened only once in a process.
type Devices struct {
	driver Driver
	id     [16]byte   // of this process, to recognize its own offers
	uuids  [][16]byte // by index

	mu     sync.Mutex
	closed bool
	arenas int
	opened map[openKey]*opened
	idle   [][]*lane // by device
}

type openKey struct {
	device int
	handle [HandleBytes]byte
}

// opened is an allocation of another process.
type opened struct {
	address uint64
	users   int
}

// NewDevices looks at the devices of a driver. An error says why none can be used.
func NewDevices(d Driver) (*Devices, error) {
	n := d.DeviceCount()
	if n < 1 || n > maxDevices {
		return nil, fmt.Errorf("%d CUDA devices are visible, want 1 to %d: %w", n, maxDevices, nixl.ErrNotSupported)
	}
	ds := &Devices{driver: d, uuids: make([][16]byte, n), opened: map[openKey]*opened{}, idle: make([][]*lane, n)}
	for i := range n {
		var err error
		if ds.uuids[i], err = d.DeviceUUID(i); err != nil {
			return nil, fmt.Errorf("UUID of device %d: %w: %w", i, err, nixl.ErrBackend)
		}
	}
	rand.Read(ds.id[:]) // never fails
	return ds, nil
}

// maxDevices fit into an offer of 255 bytes.
const maxDevices = 14

// find returns the index of a device that another process names by its UUID.
func (ds *Devices) find(uuid [16]byte) (device int, ok bool) {
	for i, u := range ds.uuids {
		if u == uuid {
			return i, true
		}
	}
	return 0, false
}

// open maps an allocation of another process, or counts one more user of it.
func (ds *Devices) open(k openKey) (*opened, error) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if o := ds.opened[k]; o != nil {
		o.users++
		return o, nil
	}
	if ds.closed {
		return nil, fmt.Errorf("devices are closed: %w", nixl.ErrCanceled)
	}
	address, err := ds.driver.IpcOpenMemHandle(k.device, k.handle)
	if err != nil {
		return nil, fmt.Errorf("open memory handle on device %d: %w: %w", k.device, err, nixl.ErrBackend)
	}
	o := &opened{address: address, users: 1}
	ds.opened[k] = o
	return o, nil
}

// release ends the use of an allocation; the last one closes it.
func (ds *Devices) release(k openKey) error {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	o := ds.opened[k]
	if o.users--; o.users > 0 {
		return nil
	}
	delete(ds.opened, k)
	return ds.driver.IpcCloseMemHandle(k.device, o.address)
}

// Close gives streams and events back. It returns ErrNotAllowed, and does nothing,
// while arenas or agents use the devices.
func (ds *Devices) Close() error {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if ds.arenas > 0 || len(ds.opened) > 0 {
		return fmt.Errorf("close devices: %d arenas and %d allocations of peers are in use: %w", ds.arenas, len(ds.opened), nixl.ErrNotAllowed)
	}
	ds.closed = true
	var errs []error
	for i, lanes := range ds.idle {
		for _, l := range lanes {
			errs = append(errs, l.destroy())
		}
		ds.idle[i] = nil
	}
	return errors.Join(errs...)
}
