package local

import (
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/nixl"
)

const (
	chunkBytes  = 1 << 20  // between two looks at whether to stop
	deviceBytes = 32 << 20 // the same within devices: about 0.02 ms
	splitBytes  = 16 << 20 // transfers from here on are copied by two goroutines
)

// run carries a job out.
func (l *link) run(j *nixl.Job) {
	if err := l.open(); err != nil {
		j.Finish(err)
		return
	}
	grant, err := l.target.host.Acquire(j.Op, j.Ticket, j.Remote)
	if err != nil {
		j.Finish(err)
		return
	}
	c := &copying{stop: make(chan struct{}), slots: l.source.reg.slots}
	c.src = pieces(j.Local, j.Devices)
	if c.dst, err = l.granted(grant); err != nil {
		grant.Release(0)
		j.Finish(err)
		return
	}
	if j.Op == nixl.Read {
		c.dst, c.src = c.src, c.dst
	}
	j.OnCancel(c.end)
	grant.OnStop(func() { c.end(grant.StopCause()) })

	var wg sync.WaitGroup
	if j.Bytes >= splitBytes {
		wg.Go(func() { c.work(l) })
	}
	c.work(l)
	wg.Wait()
	err = c.err()
	if err == nil && j.Op == nixl.Write {
		err = grant.Commit()
	}
	grant.Release(c.moved())
	if err != nil {
		j.Finish(err)
		return
	}
	if j.HasNotify {
		if err := l.deliver(c.stop, j.Notify); err != nil {
			if cause := c.err(); cause != nil {
				err = cause
			}
			j.Finish(err)
			return
		}
	}
	j.Finish(nil)
}

// piece is memory of the host, or of a device.
type piece struct {
	host   []byte
	device nixl.DevicePiece // where host is nil
}

func (p piece) len() int {
	if p.host == nil {
		return int(p.device.Len)
	}
	return len(p.host)
}

// pieces are memory of a job: host memory, and that of devices in the place of nil.
func pieces(host [][]byte, devices []nixl.DevicePiece) []piece {
	out := make([]piece, len(host))
	for i, h := range host {
		if out[i].host = h; h == nil && i < len(devices) {
			out[i].device = devices[i]
		}
	}
	return out
}

// granted are the memory that the peer lets a job touch.
func (l *link) granted(g *nixl.Grant) ([]piece, error) {
	var devices []nixl.DevicePiece
	for i, h := range g.Segments() {
		if h != nil {
			continue
		}
		d := g.Descs()[i]
		s, err := l.target.host.Share(d)
		if err == nil && s.Device == nil {
			err = fmt.Errorf("descriptor %s names memory that cannot be copied: %w", d, nixl.ErrNotSupported)
		}
		if err != nil {
			return nil, err
		}
		if devices == nil {
			devices = make([]nixl.DevicePiece, len(g.Segments()))
		}
		devices[i] = nixl.DevicePiece{Memory: s.Device, Off: d.Addr - s.Base.Addr, Len: d.Len}
	}
	return pieces(g.Segments(), devices), nil
}

// chunk is copied between two checks for cancellation.
type chunk struct {
	dst, src piece
	off, n   int
}

// move copies a chunk and returns when its bytes have arrived.
func (k chunk) move() error {
	end := k.off + k.n
	to, from := k.dst.device, k.src.device
	at, of := to.Off+uint64(k.off), from.Off+uint64(k.off)
	var err error
	switch {
	case k.dst.host != nil && k.src.host != nil:
		copy(k.dst.host[k.off:end], k.src.host[k.off:end])
	case k.dst.host != nil:
		_, err = from.Memory.ReadAt(k.dst.host[k.off:end], int64(of))
	case k.src.host != nil:
		_, err = to.Memory.WriteAt(k.src.host[k.off:end], int64(at))
	default:
		c, ok := to.Memory.(nixl.DeviceCopier)
		if !ok {
			return fmt.Errorf("%T takes no memory of devices: %w", to.Memory, nixl.ErrNotSupported)
		}
		err = c.CopyFrom(at, from.Memory, of, uint64(k.n))
	}
	return err
}

// copying is a list of pieces being copied by one or two goroutines.
type copying struct {
	dst, src []piece // equal lengths, piece by piece
	slots    chan struct{}
	stop     chan struct{} // closed by end

	mu     sync.Mutex
	cause  error
	piece  int // next to be copied
	off    int
	copied uint64
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

func (c *copying) moved() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.copied
}

// work copies chunks until there are none left or the copying must stop.
func (c *copying) work(l *link) {
	for {
		select {
		case c.slots <- struct{}{}:
		case <-c.stop:
			return
		}
		k, ok := c.next(l)
		if ok {
			if err := k.move(); err != nil {
				c.end(err)
				ok = false
			}
		}
		<-c.slots
		if !ok {
			return
		}
		c.mu.Lock()
		c.copied += uint64(k.n)
		c.mu.Unlock()
	}
}

// next takes a chunk off the list; not ok when done or stopped.
func (c *copying) next(l *link) (k chunk, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-l.ended:
		if c.cause == nil {
			c.cause = l.cause
			close(c.stop)
		}
	default:
	}
	if c.cause != nil || c.piece == len(c.dst) {
		return k, false
	}
	k = chunk{dst: c.dst[c.piece], src: c.src[c.piece], off: c.off}
	most, all := chunkBytes, k.dst.len()
	if k.dst.host == nil && k.src.host == nil {
		most = deviceBytes
	}
	k.n = min(most, all-c.off)
	if c.off += k.n; c.off == all {
		c.piece, c.off = c.piece+1, 0
	}
	return k, true
}
