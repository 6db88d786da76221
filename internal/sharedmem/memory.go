package sharedmem

import (
	"fmt"
	"math"
	"os"
	"sync"
)

// Memory is zeroed, page-aligned memory off the Go heap.
type Memory struct {
	data  []byte
	fd    int // -1: private
	unmap func() error

	closeOnce sync.Once
	closeErr  error
}

// New allocates size bytes, rounded up to whole pages in the kernel but not in
// Bytes. Pages take room only once they are written. The name shows up in the
// kernel's lists of mappings.
func New(name string, size int) (*Memory, error) {
	if size < 1 || size > math.MaxInt-pageRound {
		return nil, fmt.Errorf("allocate %d bytes of shared memory: not a size", size)
	}
	data, fd, unmap, err := allocate(name, size)
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes of shared memory: %w", size, err)
	}
	return &Memory{data: data, fd: fd, unmap: unmap}, nil
}

// Private allocates memory like New that no other process can map, which gets large
// pages more easily.
func Private(size int) (*Memory, error) {
	if size < 1 || size > math.MaxInt-pageRound {
		return nil, fmt.Errorf("allocate %d bytes of memory: not a size", size)
	}
	data, unmap, err := private(size)
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes of memory: %w", size, err)
	}
	return &Memory{data: data, fd: -1, unmap: unmap}, nil
}

// pageRound is more than any page is long.
const pageRound = 1 << 20

// Bytes returns the memory.
func (m *Memory) Bytes() []byte { return m.data }

// Populate makes n bytes from off on take their room now, with the pages that they lie
// in, and changes nothing in them. The first write to a page is twenty times slower than
// the others; who knows what will be written can have that behind it. It fails where the
// system cannot do it (Linux before 5.14, other systems) or has no room; the memory is
// usable all the same.
func (m *Memory) Populate(off, n int) error {
	if off < 0 || n < 0 || off > len(m.data)-n {
		return fmt.Errorf("populate %d bytes from %d of %d: out of range", n, off, len(m.data))
	}
	page := os.Getpagesize()
	from := off / page * page
	if off += n; from == off {
		return nil
	}
	return populate(m.data[from:off])
}

// SharedFD returns the file that Bytes is a mapping of, from offset zero on. It is
// valid until Close. ok is false for private memory.
func (m *Memory) SharedFD() (fd int, ok bool) { return m.fd, m.fd >= 0 }

// Close frees the memory; nobody in this process may touch it afterwards. Further
// calls return the result of the first.
func (m *Memory) Close() error {
	m.closeOnce.Do(func() { m.closeErr = m.unmap() })
	return m.closeErr
}
