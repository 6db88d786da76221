package nixl

import (
	"fmt"
	"sync"
)

// Arena is zeroed, page-aligned memory off the Go heap, meant to be registered
// once and carved into blocks.
type Arena struct {
	mem   []byte
	unmap func() error

	mu     sync.Mutex
	uses   int // regions
	closed bool
}

// NewArena allocates size bytes, rounded up to whole pages. Pages take physical
// memory when they are first touched.
func NewArena(size int64) (*Arena, error) {
	if size <= 0 || size > 1<<46 {
		return nil, fmt.Errorf("allocate arena of %d bytes: %w", size, ErrInvalidParam)
	}
	mem, unmap, err := mapMemory((size + 4095) &^ 4095)
	if err != nil {
		return nil, fmt.Errorf("allocate arena of %d bytes: %w", size, err)
	}
	return &Arena{mem: mem, unmap: unmap}, nil
}

// Bytes returns the memory, or nil after Close.
func (a *Arena) Bytes() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mem
}

// Close frees the memory; nobody may touch it afterwards. It returns
// ErrNotAllowed, and frees nothing, while the arena is registered. Closing twice is
// not an error.
func (a *Arena) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	if a.uses > 0 {
		return fmt.Errorf("close arena: still registered: %w", ErrNotAllowed)
	}
	a.closed, a.mem = true, nil
	return a.unmap()
}

func (a *Arena) retain() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.uses++
	return true
}

func (a *Arena) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.uses--
}
