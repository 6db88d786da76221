package fake

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// Options describes the driver and the devices that the fake pretends to be.
type Options struct {
	Version driver.Version      // 0: 13.0
	Devices []driver.Properties // none: one device with 1 GiB
	Kernels []Kernel
	// NoPeers are devices that no other one has access to.
	NoPeers []int
	// PTX has modules run as they are loaded, by the emulator. Kernels then say only which
	// resources those of that name take.
	PTX bool
	// Seed chooses the order in which the emulator has warps go on.
	Seed uint64
}

// Driver is a pretended driver. It satisfies driver.Driver.
type Driver struct {
	version driver.Version
	kernels map[string]Kernel
	ptx     bool
	seed    uint64

	mu      sync.Mutex
	devices []device
	faults  []error
	next    uint64 // address or handle: none is used twice
	mem     []*allocation
	streams map[uint64]*stream
	events  map[uint64]*event
	modules map[uint64]*module
	funcs   map[uint64]*function
	graphs  map[uint64]*graph
	host    clock // what the host has waited for
}

var _ driver.Driver = (*Driver)(nil)

type device struct {
	properties driver.Properties
	used       int64
	lost       driver.Result // what broke the context, Success for nothing
	alone      bool          // no peer has access, nor has it
	peers      map[int]bool  // whose memory its kernels may use
}

// New makes a driver.
func New(o Options) *Driver {
	if o.Version == 0 {
		o.Version = 13000
	}
	if len(o.Devices) == 0 {
		o.Devices = []driver.Properties{{
			Name: "Fake H200", PCI: "0000:3b:00.0", Major: 9, Minor: 0, Multiprocessors: 132, MemoryBytes: 1 << 30, L2Bytes: 50 << 20, SharedBytes: 227 << 10,
		}}
	}
	d := &Driver{
		version: o.Version, ptx: o.PTX, seed: o.Seed, kernels: map[string]Kernel{}, next: 1 << 32, host: clock{},
		streams: map[uint64]*stream{}, events: map[uint64]*event{}, modules: map[uint64]*module{},
		funcs: map[uint64]*function{}, graphs: map[uint64]*graph{},
	}
	for i, p := range o.Devices {
		if p.UUID == [16]byte{} {
			binary.BigEndian.PutUint64(p.UUID[8:], uint64(i)+1)
		}
		d.devices = append(d.devices, device{properties: p, alone: slices.Contains(o.NoPeers, i), peers: map[int]bool{}})
	}
	for _, k := range o.Kernels {
		d.kernels[k.Name] = k
	}
	return d
}

// Lose breaks the context of a device: every call on it fails from now on.
func (d *Driver) Lose(device int, r driver.Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.devices[device].lost = r
}

// Close returns all faults, and what is left.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	errs := d.faults
	for _, m := range d.mem {
		if !m.gone {
			errs = append(errs, fmt.Errorf("fake: %s is left", m))
		}
	}
	for _, s := range d.streams {
		if n := len(s.pending); n > 0 {
			errs = append(errs, fmt.Errorf("fake: no wait for %d works of stream %#x, the first is %s", n, s.id, s.pending[0].what))
		}
	}
	left := func(n int, what string) {
		if n > 0 {
			errs = append(errs, fmt.Errorf("fake: %d %s left", n, what))
		}
	}
	left(len(d.streams), "streams are")
	left(len(d.events), "events are")
	left(len(d.modules), "modules are")
	left(len(d.graphs), "graphs are")
	d.faults, d.mem = nil, nil
	clear(d.streams)
	clear(d.events)
	clear(d.modules)
	clear(d.graphs)
	return errors.Join(errs...)
}

// enter locks the driver for a call on a device.
func (d *Driver) enter(call string, device int) error {
	if device < 0 || device >= len(d.devices) {
		return fmt.Errorf("%w: no device %d, there are %d", driver.ErrInvalid, device, len(d.devices))
	}
	d.mu.Lock()
	if r := d.devices[device].lost; r != driver.Success {
		d.mu.Unlock()
		return &driver.Error{Call: call, Device: device, Result: r}
	}
	return nil
}

// fault notes a mistake of the caller and returns it.
func (d *Driver) fault(call string, device int, r driver.Result, format string, args ...any) error {
	err := &driver.Error{Call: call, Device: device, Result: r, Detail: fmt.Sprintf(format, args...)}
	d.faults = append(d.faults, fmt.Errorf("fake: %w", err))
	return err
}

// number returns a handle that was not used before.
func (d *Driver) number() uint64 {
	d.next++
	return d.next
}

// Version implements driver.Driver.
func (d *Driver) Version() driver.Version { return d.version }

// DeviceCount implements driver.Driver.
func (d *Driver) DeviceCount() int { return len(d.devices) }

// DeviceUUID implements driver.Driver.
func (d *Driver) DeviceUUID(device int) ([16]byte, error) {
	p, err := d.DeviceProperties(device)
	return p.UUID, err
}

// DeviceProperties implements driver.Driver.
func (d *Driver) DeviceProperties(device int) (p driver.Properties, err error) {
	if err := d.enter("cuDeviceGetAttribute", device); err != nil {
		return p, err
	}
	defer d.mu.Unlock()
	return d.devices[device].properties, nil
}

// MemGetInfo implements driver.Driver.
func (d *Driver) MemGetInfo(device int) (free, total int64, err error) {
	if err := d.enter("cuMemGetInfo", device); err != nil {
		return 0, 0, err
	}
	defer d.mu.Unlock()
	total = d.devices[device].properties.MemoryBytes
	return total - d.devices[device].used, total, nil
}
