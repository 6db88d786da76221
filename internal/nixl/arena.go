package nixl

import (
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/sharedmem"
)

// Arena is zeroed, page-aligned memory off the Go heap, meant to be registered
// once and carved into blocks. Other processes can map it where the system allows
// it; see [SharedMemory].
type Arena struct {
	mem *sharedmem.Memory

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
	mem, err := sharedmem.New("nixl-arena", int((size+4095)&^4095))
	if err != nil {
		return nil, fmt.Errorf("allocate arena: %w", err)
	}
	return &Arena{mem: mem}, nil
}

// Bytes returns the memory, or nil after Close.
func (a *Arena) Bytes() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	return a.mem.Bytes()
}

// SharedFD implements [SharedMemory].
func (a *Arena) SharedFD() (fd int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return -1, false
	}
	return a.mem.SharedFD()
}

// Close frees the memory, which may not be accessed afterwards. It returns
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
	a.closed = true
	return a.mem.Close()
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
