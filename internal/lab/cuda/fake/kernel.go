package fake

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// Kernel is a Go function that stands for a kernel of that name in the modules.
type Kernel struct {
	Name      string
	Resources driver.Resources
	Run       func(c *Call)
	Took      time.Duration // of virtual time; 0: a microsecond
}

// Call is a work that runs, a kernel or a copy: its arguments, and all access to memory.
type Call struct {
	Grid, Block driver.Dim
	SharedBytes uint32

	d       *Driver
	work    *work
	kernel  bool // not a copy
	args    []byte
	next    int
	touched map[touched]bool
	err     error
}

// access is memory that a work touched.
type access struct {
	from, to int64
	write    bool
	work     *work
}

// Pointer reads the next argument as an address.
func (c *Call) Pointer() uint64 { return binary.LittleEndian.Uint64(c.arg(8)) }

// Int64 reads the next argument as a long long.
func (c *Call) Int64() int64 { return int64(c.Pointer()) }

// Int32 reads the next argument as an int.
func (c *Call) Int32() int32 { return int32(binary.LittleEndian.Uint32(c.arg(4))) }

// Float32 reads the next argument as a float.
func (c *Call) Float32() float32 { return math.Float32frombits(uint32(c.Int32())) }

// Rewind has arguments read from the first one on again, for a kernel around another.
func (c *Call) Rewind() { c.next = 0 }

// arg returns the next n bytes of arguments; those that are missing are zeros, and a
// mistake.
func (c *Call) arg(n int) []byte {
	at := (c.next + n - 1) / n * n
	if c.next = at + n; c.next > len(c.args) {
		c.mistake(driver.InvalidValue, "the kernel has more parameters than the launch has arguments")
		return make([]byte, n)
	}
	return c.args[at:c.next]
}

// Read returns n bytes of device memory to be read.
func (c *Call) Read(address uint64, n int64) []byte { return c.device(address, n, false) }

// Write returns n bytes of device memory to be written, or read and written.
func (c *Call) Write(address uint64, n int64) []byte { return c.device(address, n, true) }

// device returns memory; where none is, the context is lost and the caller gets other
// memory, so that it need not care.
func (c *Call) device(address uint64, n int64, write bool) []byte {
	m := c.d.find("", address, n)
	if m == nil || m.gone {
		c.mistake(driver.IllegalAddress, "%d bytes at %#x: %s", n, address, absent(m))
		return make([]byte, max(n, 0))
	}
	if here := c.work.stream.device; c.kernel && m.device != here && !c.d.devices[here].peers[m.device] {
		c.mistake(driver.IllegalAddress, "%s is used by a kernel of device %d, which has no access to it", m, here)
	}
	off := int64(address - m.address)
	c.touch(m, off, off+n, write)
	if write && m.written != nil {
		m.written.Add(int(off), int(n))
	}
	return m.bytes[off : off+n]
}

// host returns memory of the host, which is watched where the driver allocated it.
func (c *Call) host(b []byte, write bool) []byte {
	m := c.d.find("host memory", hostAddress(b), int64(len(b)))
	if m != nil && !m.gone {
		off := int64(hostAddress(b) - m.address)
		c.touch(m, off, off+int64(len(b)), write)
	}
	return b
}

// touch looks for accesses without an order to this one, and remembers it.
func (c *Call) touch(m *allocation, from, to int64, write bool) {
	w := c.work
	this := touched{m, from, to, write}
	if c.touched[this] {
		return // kernels read the same again and again
	}
	if c.touched == nil {
		c.touched = map[touched]bool{}
	}
	c.touched[this] = true
	// A work that reads a table row by row leaves one access, not thousands.
	var own *access
	for i := len(m.history) - 1; i >= 0 && m.history[i].work == w && own == nil; i-- {
		if a := &m.history[i]; a.write == write && from <= a.to && a.from <= to {
			own = a
		}
	}
	if own != nil && own.from <= from && to <= own.to {
		return
	}
	for _, a := range m.history {
		if a.to <= from || to <= a.from || !a.write && !write {
			continue
		}
		if a.work.at <= w.sees[a.work.stream.id] || w.at <= a.work.sees[w.stream.id] {
			continue
		}
		c.mistake(driver.InvalidValue, "%s of stream %#x and %s of stream %#x use %s, and neither waits for the other",
			a.work.what, a.work.stream.id, w.what, w.stream.id, m)
	}
	if own != nil {
		own.from, own.to = min(own.from, from), max(own.to, to)
		return
	}
	m.history = append(m.history, access{from, to, write, w})
}

// touched is an access of the call at hand.
type touched struct {
	m        *allocation
	from, to int64
	write    bool
}

// mistake notes a fault of the work; the first is what the waiter gets.
func (c *Call) mistake(r driver.Result, format string, args ...any) {
	err := c.d.fault(c.work.what, c.work.stream.device, r, format, args...)
	if c.err == nil {
		c.err = err
	}
	if r == driver.IllegalAddress {
		c.d.devices[c.work.stream.device].lost = r
	}
}
