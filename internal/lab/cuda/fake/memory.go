package fake

import (
	"fmt"
	"unsafe"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/lab/cuda/emulator"
)

// What memory holds before it is written, and after it was freed.
const (
	fresh = 0xcd
	freed = 0xdb
)

// pageBytes is the alignment of allocations.
const pageBytes = 4096

// allocation is memory of a device, of the host, or of a peer.
type allocation struct {
	kind    string // "memory", "host memory" or "memory of a peer"
	device  int
	address uint64
	bytes   []byte
	gone    bool
	pending int // copies that name it and have not run
	shared  *shared
	history []access
	written *emulator.Bitmap // bytes that hold something; nil where nobody looks
}

func (m *allocation) String() string {
	return fmt.Sprintf("%s of %d bytes at %#x of device %d", m.kind, len(m.bytes), m.address, m.device)
}

// MemAlloc implements driver.Driver.
func (d *Driver) MemAlloc(device int, size int64) (uint64, error) {
	if size <= 0 {
		return 0, fmt.Errorf("%w: allocation of %d bytes", driver.ErrInvalid, size)
	}
	if err := d.enter("cuMemAlloc", device); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	if free := d.devices[device].properties.MemoryBytes - d.devices[device].used; size > free {
		return 0, &driver.Error{Call: "cuMemAlloc", Device: device, Result: driver.OutOfMemory,
			Detail: fmt.Sprintf("%d bytes asked for, %d of %d free", size, free, d.devices[device].properties.MemoryBytes)}
	}
	d.devices[device].used += size
	m := &allocation{kind: "memory", device: device, bytes: filled(make([]byte, size, max(size, 16)), fresh)}
	if d.ptx {
		m.written = emulator.NewBitmap(len(m.bytes))
	}
	d.add(m)
	return m.address, nil
}

// add gives memory of a device its address, far from that of others.
func (d *Driver) add(m *allocation) {
	m.address = (d.next/pageBytes + 2) * pageBytes
	d.next = m.address + uint64(len(m.bytes))
	d.mem = append(d.mem, m)
}

// MemFree implements driver.Driver.
func (d *Driver) MemFree(device int, address uint64) error {
	return d.drop("cuMemFree", "memory", device, address)
}

// MemHostAlloc implements driver.Driver.
func (d *Driver) MemHostAlloc(device int, size int64) ([]byte, error) {
	if size <= 0 {
		return nil, fmt.Errorf("%w: allocation of %d bytes", driver.ErrInvalid, size)
	}
	if err := d.enter("cuMemHostAlloc", device); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	m := &allocation{kind: "host memory", device: device, bytes: filled(make([]byte, size, max(size, 16)), fresh)}
	m.address = hostAddress(m.bytes)
	d.mem = append(d.mem, m)
	return m.bytes, nil
}

// filled fills memory behind the back of the race detector, which would spend most of the
// time of engines' tests on it. Allocations of less than 16 bytes would not be aligned.
//
//go:norace
func filled(b []byte, v byte) []byte {
	b[0] = v
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
	return b
}

func hostAddress(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// MemFreeHost implements driver.Driver.
func (d *Driver) MemFreeHost(device int, mem []byte) error {
	return d.drop("cuMemFreeHost", "host memory", device, hostAddress(mem))
}

func (d *Driver) drop(call, kind string, device int, address uint64) error {
	if err := d.enter(call, device); err != nil {
		return err
	}
	defer d.mu.Unlock()
	m := d.find(kind, address, 1) // a neighbor may end there
	switch {
	case m == nil || m.address != address:
		return d.fault(call, device, driver.InvalidValue, "no %s begins at %#x", kind, address)
	case m.gone:
		return d.fault(call, device, driver.InvalidValue, "%s is freed again", m)
	case m.pending > 0:
		return d.fault(call, device, driver.InvalidValue, "%s is freed while %d works that name it have not ended", m, m.pending)
	}
	if err := m.unshare(); err != nil {
		return d.fault(call, device, driver.InvalidValue, "%s %v", m, err)
	}
	m.gone = true
	if kind == "memory" {
		d.devices[m.device].used -= int64(len(m.bytes))
	}
	if kind != "memory of a peer" {
		for at := 0; at < len(m.bytes); at += 64 { // the race detector looks at these
			m.bytes[at] = freed
		}
		filled(m.bytes, freed)
	}
	return nil
}

// find returns the allocation around n bytes, freed or not; live ones go first, because
// the host uses addresses again.
func (d *Driver) find(kind string, address uint64, n int64) *allocation {
	var gone *allocation
	for _, m := range d.mem {
		if (m.kind == "host memory") != (kind == "host memory") || kind != "" && m.kind != kind {
			continue
		}
		if address < m.address || n < 0 || address+uint64(n) > m.address+uint64(len(m.bytes)) {
			continue
		}
		if !m.gone {
			return m
		}
		gone = m
	}
	return gone
}

// Bytes shows memory of a device to a test, which must know that nothing runs, and which
// may write it.
func (d *Driver) Bytes(address uint64, n int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.find("", address, int64(n))
	if m == nil {
		return nil
	}
	off := address - m.address
	if m.written != nil {
		m.written.Add(int(off), n)
	}
	return m.bytes[off : off+uint64(n)]
}

// MemsetD8Async implements driver.Driver.
func (d *Driver) MemsetD8Async(device int, dst uint64, value byte, n int64, stream uint64) error {
	return d.enqueue("cuMemsetD8Async", device, stream, work{
		what: fmt.Sprintf("set of %d bytes at %#x", n, dst), names: []span{{address: dst, n: n}},
		run: func(c *Call) {
			for b, i := c.Write(dst, n), 0; i < len(b); i++ {
				b[i] = value
			}
		},
	})
}

// MemcpyDtoDAsync implements driver.Driver.
func (d *Driver) MemcpyDtoDAsync(device int, dst, src uint64, n int64, stream uint64) error {
	return d.enqueue("cuMemcpyDtoDAsync", device, stream, work{
		what: fmt.Sprintf("copy of %d bytes from %#x to %#x", n, src, dst), names: []span{{address: dst, n: n}, {address: src, n: n}},
		run: func(c *Call) { copy(c.Write(dst, n), c.Read(src, n)) },
	})
}

// MemcpyHtoDAsync implements driver.Driver.
func (d *Driver) MemcpyHtoDAsync(device int, dst uint64, src []byte, stream uint64) error {
	n := int64(len(src))
	return d.enqueue("cuMemcpyHtoDAsync", device, stream, work{
		what: fmt.Sprintf("copy of %d bytes from the host to %#x", n, dst), names: []span{{address: dst, n: n}, {host: src}}, sources: [][]byte{src},
		run: func(c *Call) { copy(c.Write(dst, n), c.host(src, false)) },
	})
}

// MemcpyDtoHAsync implements driver.Driver.
func (d *Driver) MemcpyDtoHAsync(device int, dst []byte, src uint64, stream uint64) error {
	n := int64(len(dst))
	return d.enqueue("cuMemcpyDtoHAsync", device, stream, work{
		what: fmt.Sprintf("copy of %d bytes from %#x to the host", n, src), names: []span{{address: src, n: n}, {host: dst}},
		run: func(c *Call) { copy(c.host(dst, true), c.Read(src, n)) },
	})
}
