package device

import (
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// Purpose names the use of an arena.
type Purpose string

// The purposes of memory.
const (
	Weights   Purpose = "weights"
	KV        Purpose = "kv"
	Workspace Purpose = "workspace"
	IO        Purpose = "io" // what a step reads and what it answers
)

// Region is memory of a device.
type Region struct {
	Address uint64
	Bytes   int64
}

// Slice is a part of a region. It panics when that is not within it, as a slice does.
func (r Region) Slice(offset, bytes int64) Region {
	if offset < 0 || bytes < 0 || bytes > r.Bytes-offset {
		panic(fmt.Sprintf("device memory [%d:%d] of %d bytes", offset, offset+bytes, r.Bytes))
	}
	return Region{r.Address + uint64(offset), bytes}
}

// alignment is that of everything in an arena: what kernels read at a time, and twice a
// line of the cache.
const alignment = 256

// Arena is one allocation, of which parts are taken and never given back.
type Arena struct {
	Purpose Purpose
	base    uint64
	bytes   int64

	mu   sync.Mutex
	used int64
}

// granule is the unit in which the driver allocates memory, in bytes. It puts smaller allocations together,
// and a handle for a peer gives away all that is in the same piece.
const granule = 2 << 20

// Arena allocates memory of the device. It lives until the scope is closed. One
// allocation for each purpose is one handle for peers, and no hole between the parts. That of
// [KV], which peers reach, takes whole multiples of 2 MiB of the device.
func (s *Scope) Arena(p Purpose, bytes int64) (*Arena, error) {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.allocating(); err != nil {
		return nil, fmt.Errorf("allocate %s for %s: %w", gib(bytes), p, err)
	}
	size := bytes
	if p == KV {
		size = roundUp(bytes, granule)
	}
	base, err := d.driver.MemAlloc(d.index, size)
	if err != nil {
		return nil, fmt.Errorf("allocate %s for %s: %w", gib(bytes), p, err)
	}
	a := &Arena{Purpose: p, base: base, bytes: bytes}
	s.arenas = append(s.arenas, a)
	return a, nil
}

// All is the whole memory of the arena, taken or not, for what divides it itself.
func (a *Arena) All() Region { return Region{a.base, a.bytes} }

// Take takes the next bytes of the arena, aligned to 256.
func (a *Arena) Take(bytes int64) (Region, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if bytes < 1 {
		return Region{}, fmt.Errorf("%w: %d bytes of the %s arena", driver.ErrInvalid, bytes, a.Purpose)
	}
	if bytes > a.bytes-a.used {
		return Region{}, fmt.Errorf("%w: the %s arena has %d of %d bytes left, %d are asked for", driver.ErrOutOfMemory, a.Purpose, a.bytes-a.used, a.bytes, bytes)
	}
	r := Region{a.base + uint64(a.used), bytes}
	a.used = min(roundUp(a.used+bytes, alignment), a.bytes)
	return r, nil
}

// Aligned returns the space that an allocation takes in an arena, in bytes.
func Aligned(bytes int64) int64 { return roundUp(bytes, alignment) }

func roundUp(n, of int64) int64 { return (n + of - 1) / of * of }

// Usage is the use of an arena, or of all arenas of a purpose.
type Usage struct {
	Purpose     Purpose
	Bytes, Used int64
	Pinned      bool // memory of the host
}

// Usage lists the arenas of all scopes in the order in which those and they were made;
// arenas of the host come last in their scope.
func (d *Device) Usage() []Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Usage
	for _, s := range d.scopes {
		for _, a := range s.arenas {
			out = append(out, a.usage())
		}
		for _, p := range s.pinned {
			out = append(out, p.usage())
		}
	}
	return out
}

func (a *Arena) usage() Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Usage{Purpose: a.Purpose, Bytes: a.bytes, Used: a.used}
}

func (p *Pinned) usage() Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Usage{Purpose: p.Purpose, Bytes: int64(len(p.mem)), Used: p.used, Pinned: true}
}

// Pinned is page-locked memory of the host, which copies read and write by themselves.
type Pinned struct {
	Purpose Purpose
	mem     []byte

	mu   sync.Mutex
	used int64
}

// Pinned allocates page-locked memory of the host. It lives until the scope is closed:
// a slice of it must not be touched after.
func (s *Scope) Pinned(p Purpose, bytes int64) (*Pinned, error) {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.allocating(); err != nil {
		return nil, fmt.Errorf("lock %s of the host for %s: %w", gib(bytes), p, err)
	}
	mem, err := d.driver.MemHostAlloc(d.index, bytes)
	if err != nil {
		return nil, fmt.Errorf("lock %s of the host for %s: %w", gib(bytes), p, err)
	}
	pinned := &Pinned{Purpose: p, mem: mem}
	s.pinned = append(s.pinned, pinned)
	return pinned, nil
}

// Take takes the next bytes, aligned to 256.
func (p *Pinned) Take(bytes int64) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	size := int64(len(p.mem))
	if bytes < 1 {
		return nil, fmt.Errorf("%w: %d bytes of pinned memory", driver.ErrInvalid, bytes)
	}
	if bytes > size-p.used {
		return nil, fmt.Errorf("%w: pinned memory for %s has %d of %d bytes left, %d are asked for", driver.ErrOutOfMemory, p.Purpose, size-p.used, size, bytes)
	}
	b := p.mem[p.used : p.used+bytes : p.used+bytes]
	p.used = min(roundUp(p.used+bytes, alignment), size)
	return b, nil
}
