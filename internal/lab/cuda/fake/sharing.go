package fake

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// shared is memory that other fakes can open by its handle: those of one process are
// strangers to each other, as processes are.
type shared struct {
	owner   *Driver
	uuid    [16]byte
	bytes   []byte
	openers atomic.Int64
}

var handles = struct {
	sync.Mutex
	last uint64
	by   map[[driver.HandleBytes]byte]*shared
}{by: map[[driver.HandleBytes]byte]*shared{}}

// IpcGetMemHandle implements driver.Driver.
func (d *Driver) IpcGetMemHandle(device int, address uint64) (h [driver.HandleBytes]byte, err error) {
	if err := d.enter("cuIpcGetMemHandle", device); err != nil {
		return h, err
	}
	defer d.mu.Unlock()
	m := d.find("memory", address, 0)
	if m == nil || m.gone || m.address != address || m.device != device {
		return h, d.fault("cuIpcGetMemHandle", device, driver.InvalidValue, "no allocation begins at %#x", address)
	}
	handles.Lock()
	defer handles.Unlock()
	for h, s := range handles.by {
		if s == m.shared {
			return h, nil
		}
	}
	handles.last++
	binary.LittleEndian.PutUint64(h[:], handles.last)
	m.shared = &shared{owner: d, uuid: d.devices[device].properties.UUID, bytes: m.bytes}
	handles.by[h] = m.shared
	return h, nil
}

// IpcOpenMemHandle implements driver.Driver.
func (d *Driver) IpcOpenMemHandle(device int, h [driver.HandleBytes]byte) (uint64, error) {
	const call = "cuIpcOpenMemHandle"
	if err := d.enter(call, device); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	handles.Lock()
	s := handles.by[h]
	handles.Unlock()
	switch {
	case s == nil: // the owner is gone
		return 0, &driver.Error{Call: call, Device: device, Result: driver.InvalidValue}
	case s.owner == d:
		return 0, d.fault(call, device, driver.InvalidContext, "a handle is opened in the process that made it")
	case s.uuid != d.devices[device].properties.UUID:
		return 0, d.fault(call, device, driver.InvalidValue, "a handle of another device is opened")
	}
	for _, m := range d.mem {
		if !m.gone && m.shared == s {
			return 0, d.fault(call, device, driver.InvalidValue, "a handle is opened twice")
		}
	}
	s.openers.Add(1)
	m := &allocation{kind: "memory of a peer", device: device, bytes: s.bytes, shared: s}
	d.add(m)
	return m.address, nil
}

// IpcCloseMemHandle implements driver.Driver.
func (d *Driver) IpcCloseMemHandle(device int, address uint64) error {
	return d.drop("cuIpcCloseMemHandle", "memory of a peer", device, address)
}

// unshare ends the sharing of memory that is freed or closed.
func (m *allocation) unshare() error {
	switch {
	case m.shared == nil:
		return nil
	case m.kind == "memory of a peer":
		m.shared.openers.Add(-1)
		return nil
	}
	if n := m.shared.openers.Load(); n > 0 {
		return fmt.Errorf("is freed while %d processes have it open", n)
	}
	handles.Lock()
	defer handles.Unlock()
	for h, s := range handles.by {
		if s == m.shared {
			delete(handles.by, h)
		}
	}
	return nil
}
