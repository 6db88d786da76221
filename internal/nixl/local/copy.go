package local

import (
	"sync"

	"github.com/dynctl/dynctl/internal/nixl"
)

const (
	chunkBytes = 1 << 20  // between two looks at whether to stop
	splitBytes = 16 << 20 // transfers from here on are copied by two goroutines
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
	c := &copying{stop: make(chan struct{}), dst: grant.Segments(), src: j.Local, slots: l.source.reg.slots}
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

// copying is a list of pieces being copied by one or two goroutines.
type copying struct {
	dst, src [][]byte // equal lengths, piece by piece
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
		n := 0
		if dst, src := c.next(l); dst != nil {
			n = copy(dst, src)
		}
		<-c.slots
		if n == 0 {
			return
		}
		c.mu.Lock()
		c.copied += uint64(n)
		c.mu.Unlock()
	}
}

// next takes up to chunkBytes off the list; nil when done or stopped.
func (c *copying) next(l *link) (dst, src []byte) {
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
		return nil, nil
	}
	d, s := c.dst[c.piece], c.src[c.piece]
	end := min(c.off+chunkBytes, len(d))
	dst, src = d[c.off:end], s[c.off:end]
	if c.off = end; end == len(d) {
		c.piece, c.off = c.piece+1, 0
	}
	return dst, src
}
