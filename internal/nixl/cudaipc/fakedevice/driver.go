//go:build linux

package fakedevice

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
)

// Driver is the driver of a pretended process. It satisfies cudaipc.Driver.
type Driver struct {
	id      uint64 // of the process, in handles
	devices []byte // numbers of the visible ones

	mu      sync.Mutex
	broken  bool
	done    Copies
	faults  []string
	next    uint64 // address, stream or event: none is used twice
	mem     []*allocation
	streams map[uint64]*stream
	events  map[uint64]*event
	copies  sync.WaitGroup // goroutines that copy
}

var processes atomic.Uint64

// New makes the driver of a process that sees the devices of those numbers: processes
// that see the same number see the same device.
func New(devices ...byte) *Driver {
	return &Driver{
		id: processes.Add(1), devices: devices, next: 1 << 32,
		streams: map[uint64]*stream{}, events: map[uint64]*event{},
	}
}

// Copies counts the copies that were begun.
type Copies struct{ DtoD, HtoD, DtoH int }

// Copies returns how many copies were begun since the last call.
func (d *Driver) Copies() Copies {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.done
	d.done = Copies{}
	return c
}

// Break makes copies fail from now on, or work again.
func (d *Driver) Break(broken bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = broken
}

// Close waits for copies and returns what was done wrong, or is left, if anything.
func (d *Driver) Close() (faults []string) {
	d.copies.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	faults = d.faults
	for _, m := range d.mem {
		if !m.gone {
			faults = append(faults, fmt.Sprintf("%s is left", m))
			m.unmap()
		}
	}
	if n, e := len(d.streams), len(d.events); n+e > 0 {
		faults = append(faults, fmt.Sprintf("%d streams and %d events are left", n, e))
	}
	return faults
}

// fault notes a mistake and returns it as an error.
func (d *Driver) fault(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	d.faults = append(d.faults, text)
	return fmt.Errorf("fake device: %s", text)
}

// number returns something that was not used before.
func (d *Driver) number() uint64 {
	d.next++
	return d.next
}

// DeviceCount is the number of visible devices.
func (d *Driver) DeviceCount() int { return len(d.devices) }

// DeviceUUID depends on the number of the device only.
func (d *Driver) DeviceUUID(device int) (uuid [16]byte, err error) {
	if device < 0 || device >= len(d.devices) {
		return uuid, fmt.Errorf("fake device: no device %d", device)
	}
	binary.BigEndian.PutUint64(uuid[8:], uint64(d.devices[device])+1)
	return uuid, nil
}
