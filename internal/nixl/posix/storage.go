package posix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"sync"

	"github.com/dynctl/dynctl/internal/nixl"
)

// Name is the name of this backend.
const Name = "posix"

const (
	callBytes  = 8 << 20 // of one system call; a canceled transfer ends after it
	callPieces = 1024    // IOV_MAX of Linux
)

// Options configure a storage. The zero value is fine.
type Options struct {
	// Parallel is how many transfers are inside of system calls at a time; default the
	// number of processors, at least 4.
	Parallel int
}

// New returns a storage for one agent, to be put into its Config.
func New(o Options) nixl.Storage {
	if o.Parallel <= 0 {
		o.Parallel = max(4, runtime.GOMAXPROCS(0))
	}
	return &storage{slots: make(chan struct{}, o.Parallel), closing: make(chan struct{})}
}

type storage struct {
	slots chan struct{} // one per transfer inside of system calls

	mu      sync.Mutex
	closed  bool
	closing chan struct{}
	jobs    sync.WaitGroup
}

func (s *storage) Name() string { return Name }

func (s *storage) Submit(j *nixl.Job) {
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.jobs.Add(1)
	}
	s.mu.Unlock()
	if closed {
		j.Finish(errClosed)
		return
	}
	go func() {
		defer s.jobs.Done()
		j.Finish(s.run(j))
	}()
}

var errClosed = fmt.Errorf("storage is closed: %w", nixl.ErrCanceled)

func (s *storage) run(j *nixl.Job) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	j.OnCancel(cancel)
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.closing:
		return errClosed
	}
	for rest := (batches{mem: j.Local, files: j.Files}); ; {
		b, ok := rest.next()
		if !ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.closing:
			return errClosed
		default:
		}
		if err := b.move(j.Op); err != nil {
			return err
		}
	}
}

// batches cuts a job into system calls.
type batches struct {
	mem   [][]byte
	files []nixl.FilePiece
	piece int
	off   int // in the piece
}

// batch is memory whose pieces follow one another in a file.
type batch struct {
	file nixl.FileMemory
	off  int64
	mem  [][]byte
}

func (bs *batches) next() (b batch, ok bool) {
	left := callBytes
	for bs.piece < len(bs.mem) && left > 0 && len(b.mem) < callPieces {
		f, m := bs.files[bs.piece], bs.mem[bs.piece]
		at := f.Off + int64(bs.off)
		if len(b.mem) == 0 {
			b.file, b.off = f.File, at
		} else if f.File != b.file || at != b.off+int64(callBytes-left) {
			break
		}
		end := min(bs.off+left, len(m))
		b.mem = append(b.mem, m[bs.off:end])
		left -= end - bs.off
		if bs.off = end; end == len(m) {
			bs.piece, bs.off = bs.piece+1, 0
		}
	}
	return b, len(b.mem) > 0
}

// move makes the system calls of a batch: usually one, more when one is cut short.
func (b batch) move(op nixl.Op) error {
	call, verb := readv, "read"
	if op == nixl.Write {
		call, verb = writev, "write"
	}
	for len(b.mem) > 0 {
		n, err := call(b.file.FD(), b.mem, b.off)
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
			if op == nixl.Write {
				err = io.ErrShortWrite
			}
		}
		if err != nil {
			return fmt.Errorf("%s file at %d: %w: %w", verb, b.off, nixl.ErrBackend, err)
		}
		b.off += int64(n)
		b.mem = skip(b.mem, n)
	}
	return nil
}

// skip drops the first n bytes of pieces that are the caller's own list.
func skip(mem [][]byte, n int) [][]byte {
	for len(mem) > 0 && n >= len(mem[0]) {
		n -= len(mem[0])
		mem = mem[1:]
	}
	if n > 0 {
		mem[0] = mem[0][n:]
	}
	return mem
}

func (s *storage) Query(ctx context.Context, names []string) ([]nixl.MemInfo, error) {
	out := make([]nixl.MemInfo, len(names))
	for i, name := range names {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		path := name
		if sp, err := parseSpec(name); err == nil {
			path = sp.path
		}
		out[i].Name = name
		switch st, err := os.Stat(path); {
		case err == nil:
			out[i].Exists, out[i].Size = true, st.Size()
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("%w: %w", err, nixl.ErrBackend)
		}
	}
	return out, nil
}

func (s *storage) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	s.mu.Unlock()
	s.jobs.Wait()
	return nil
}
