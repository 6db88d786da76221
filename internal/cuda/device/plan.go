package device

import (
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// ErrNoRoom says that a plan does not fit; the text has the numbers.
var ErrNoRoom = errors.New("the memory of the device does not suffice")

// DefaultUtilization leaves room for what the driver allocates later: local memory of
// kernels, graphs, and modules.
const DefaultUtilization = 0.9

// Budget is the memory of a device that this process may use.
type Budget struct {
	Device      string  // its name, for messages
	Total, Free int64   // bytes; what is not free belongs to others, or to the context
	Utilization float64 // share of the total that may be in use, others included (--gpu-memory-utilization)
}

// Budget looks at the free memory. utilization is above 0 and at most 1.
func (d *Device) Budget(utilization float64) (Budget, error) {
	if !(utilization > 0 && utilization <= 1) {
		return Budget{}, fmt.Errorf("%w: a memory utilization of %g is not above 0 and at most 1", driver.ErrInvalid, utilization)
	}
	d.mu.Lock()
	err := d.usable()
	d.mu.Unlock()
	if err != nil {
		return Budget{}, err
	}
	free, total, err := d.driver.MemGetInfo(d.index)
	if err := d.Check(err); err != nil {
		return Budget{}, fmt.Errorf("look at the memory of device %d: %w", d.index, err)
	}
	return Budget{Device: d.properties.Name, Total: total, Free: free, Utilization: utilization}, nil
}

// Left returns the bytes that may still be allocated; never less than 0.
func (b Budget) Left() int64 {
	allowed := int64(b.Utilization * float64(b.Total))
	return max(min(allowed-(b.Total-b.Free), b.Free), 0)
}

// Plan lists the memory that an engine needs. KV gets the rest.
type Plan struct {
	Weights, Workspace, IO int64 // bytes
	BlockBytes             int64 // of a KV block
	MinBlocks              int   // fewer are refused
	MaxBlocks              int   // 0: as many as fit

	users int // with arenas of their own, 0 for one
}

// Add plans for one more user of the device, with as many KV blocks as the others.
func (p *Plan) Add(o Plan) {
	p.Weights += o.Weights
	p.Workspace += o.Workspace
	p.IO += o.IO
	p.BlockBytes += o.BlockBytes
	p.MinBlocks, p.MaxBlocks = max(p.MinBlocks, o.MinBlocks), max(p.MaxBlocks, o.MaxBlocks)
	p.users++
}

// maxPlanned keeps sums from overflowing.
const maxPlanned = 1 << 50

// Fit is the number of KV blocks that a plan has room for within a budget. Without room
// for MinBlocks the error is ErrNoRoom and says what is needed, what there is, and why.
func (p Plan) Fit(b Budget) (blocks int, err error) {
	for _, v := range []int64{p.Weights, p.Workspace, p.IO, int64(p.MinBlocks), int64(p.MaxBlocks)} {
		if v < 0 || v > maxPlanned {
			return 0, fmt.Errorf("%w: a plan of memory with %d", driver.ErrInvalid, v)
		}
	}
	if p.BlockBytes < 1 || p.BlockBytes > maxPlanned {
		return 0, fmt.Errorf("%w: KV blocks of %d bytes", driver.ErrInvalid, p.BlockBytes)
	}
	least := max(p.MinBlocks, 1)
	if p.MaxBlocks > 0 && p.MaxBlocks < least {
		return 0, fmt.Errorf("%w: at most %d KV blocks, and at least %d", driver.ErrInvalid, p.MaxBlocks, least)
	}
	// Each arena may need one alignment more than its parts, that of KV a whole granule.
	fixed := p.Weights + p.Workspace + p.IO + int64(max(p.users, 1))*(3*alignment+granule)
	n := (b.Left() - fixed) / p.BlockBytes
	if b.Left() < fixed || n < int64(least) {
		kv := float64(least) * float64(p.BlockBytes)
		return 0, fmt.Errorf("%w: weights %s + workspace %s + io %s + %d KV blocks %s = %s, but %s are available on %s: %s total, %s in use, at most %g of the total may be (--gpu-memory-utilization)",
			ErrNoRoom, gib(p.Weights), gib(p.Workspace), gib(p.IO), least, gib(kv), gib(float64(fixed)+kv),
			gib(b.Left()), b.Device, gib(b.Total), gib(b.Total-b.Free), b.Utilization)
	}
	if p.MaxBlocks > 0 {
		n = min(n, int64(p.MaxBlocks))
	}
	return int(n), nil
}

// gib prints bytes for people.
func gib[T int64 | float64](n T) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.0f B", float64(n))
}
