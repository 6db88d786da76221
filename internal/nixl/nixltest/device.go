package nixltest

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
)

// Device is memory of a pretended device: the host reaches it by copies only.
type Device struct {
	index int
	size  int64
	fail  atomic.Bool  // copies fail from now on
	loads atomic.Int64 // copies to the host

	mu  sync.Mutex
	mem []byte
}

var _ nixl.DeviceMemory = (*Device)(nil)

// NewDevice allocates size bytes of the device of that index.
func NewDevice(index, size int) *Device {
	return &Device{index: index, size: int64(size), mem: make([]byte, size)}
}

// Bytes implements nixl.Memory: the host cannot address it.
func (d *Device) Bytes() []byte { return nil }

// Size is the number of bytes.
func (d *Device) Size() int64 { return d.size }

// Device is the index of the device.
func (d *Device) Device() int { return d.index }

// ReadAt copies to the host.
func (d *Device) ReadAt(p []byte, off int64) (int, error) {
	d.loads.Add(1)
	return d.copy(off, len(p), func(m []byte) int { return copy(p, m) })
}

// WriteAt copies from the host.
func (d *Device) WriteAt(p []byte, off int64) (int, error) {
	return d.copy(off, len(p), func(m []byte) int { return copy(m, p) })
}

func (d *Device) copy(off int64, n int, f func([]byte) int) (int, error) {
	if d.fail.Load() {
		return 0, errors.New("the device has fallen off the bus")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if off < 0 || off+int64(n) > d.size {
		return 0, io.ErrUnexpectedEOF
	}
	return f(d.mem[off : off+int64(n)]), nil
}

// Content copies all of it to the host.
func (d *Device) Content(t testing.TB) []byte {
	t.Helper()
	b := make([]byte, d.size)
	if _, err := d.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// RegisterDevice registers memory of a device.
func RegisterDevice(t testing.TB, a *nixl.Agent, d *Device) *nixl.Region {
	t.Helper()
	r, err := a.Register(d, nixl.VRAM, nixl.WithLabel("vram"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}
