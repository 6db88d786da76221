//go:build linux

package fenced

import (
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/nixl"
)

// copying is a list of pieces being copied by a few goroutines of the initiator,
// inside the fence of the target.
type copying struct {
	op         nixl.Op
	local      [][]byte
	devices    []nixl.DevicePiece // where local has nil; nil without any
	remote     []piece            // of the lengths of local
	fence      *fence
	generation uint32
	slots      chan struct{}   // of the pool
	stop       chan struct{}   // closed by end
	lost       <-chan struct{} // closed when the session has ended

	mu    sync.Mutex
	cause error // of end
	shut  bool  // the target has shut the fence
	piece int   // next to be copied
	off   uint64
}

// end makes the copying stop; the first cause counts.
func (c *copying) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = cause
		close(c.stop)
	}
}

func (c *copying) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// run copies with up to n goroutines and reports whether everything was copied. No
// memory is touched after it has returned.
func (c *copying) run(n int) (complete bool) {
	var wg sync.WaitGroup
	for range n - 1 {
		wg.Go(c.work)
	}
	c.work()
	wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause == nil && !c.shut && c.piece == len(c.local)
}

// batch is one copy inside the fence, in one region of the peer.
type batch struct {
	mem    Memory
	local  [pieceDescs][]byte
	at     [pieceDescs]uint64
	n      int
	device []nixl.DevicePiece // in the place of local; empty if that is the host's
}

// copy touches the peer's memory.
func (b *batch) copy(op nixl.Op) (n uint64, err error) {
	if len(b.device) == 0 {
		return b.mem.Copy(op, b.local[:b.n], b.at[:b.n])
	}
	m, ok := b.mem.(DeviceMemory)
	if !ok {
		return 0, fmt.Errorf("memory of a device over a transport of host memory: %w", nixl.ErrNotSupported)
	}
	return m.CopyDevice(op, b.device, b.at[:b.n])
}

func (c *copying) work() {
	var b batch
	for {
		select {
		case c.slots <- struct{}{}:
		case <-c.stop:
			return
		case <-c.lost:
			return
		}
		more := c.step(&b)
		<-c.slots
		if !more {
			return
		}
	}
}

// step copies one batch. The peer's memory is touched here and nowhere else.
func (c *copying) step(b *batch) (more bool) {
	if !c.take(b) {
		return false
	}
	if !c.fence.enter(c.generation) {
		c.mu.Lock()
		c.shut = true
		c.mu.Unlock()
		return false
	}
	n, err := b.copy(c.op)
	c.fence.leave(n)
	if err != nil {
		c.end(err)
	}
	return err == nil
}

// take takes up to pieceBytes off the list; false when there is no more, or the
// copying must stop.
func (c *copying) take(b *batch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.lost:
		return false
	default:
	}
	b.n = 0
	if c.cause != nil || c.shut {
		return false
	}
	b.device = b.device[:0]
	left := uint64(pieceBytes)
	for ; left > 0 && b.n < pieceDescs && c.piece < len(c.local); b.n++ {
		mine, device, theirs := c.local[c.piece], c.device(c.piece), c.remote[c.piece]
		if b.n == 0 {
			if m, ok := theirs.mem.(DeviceMemory); ok {
				left = m.PieceBytes()
			}
		} else if theirs.mem != b.mem || (device.Memory != nil) != (len(b.device) > 0) {
			break
		}
		size := uint64(len(mine))
		if device.Memory != nil {
			size = device.Len
		}
		end := min(c.off+left, size)
		b.mem, b.at[b.n] = theirs.mem, theirs.at+c.off
		if device.Memory != nil {
			b.device = append(b.device, nixl.DevicePiece{Memory: device.Memory, Off: device.Off + c.off, Len: end - c.off})
		} else {
			b.local[b.n] = mine[c.off:end]
		}
		left -= end - c.off
		if c.off = end; end == size {
			c.piece, c.off = c.piece+1, 0
		}
	}
	return b.n > 0
}

// device is the memory of a device at an index of the list, if it is one's.
func (c *copying) device(i int) (d nixl.DevicePiece) {
	if c.devices != nil {
		d = c.devices[i]
	}
	return d
}
