package recording

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

const (
	// maxLine bounds the memory that a line of a damaged file can take.
	maxLine = 64 << 20
	// maxSince limits the lines in a row that depend on the line before: winding reads
	// that many.
	maxSince = 600
)

// ErrDamaged is returned when a file is not a recording, or part of it is lost. The
// error names the line.
var ErrDamaged = errors.New("not a recording, or a damaged one")

// File is a recording that was checked from its first to its last line.
type File struct {
	r     io.ReaderAt
	close io.Closer // nil when there is nothing to close
	lines []entry
	// Cut is the number of the last line when writing it was interrupted; it is left
	// out then. 0 in a complete recording.
	Cut int
}

// entry is the place of a line in the file.
type entry struct {
	offset int64
	length int
	whole  bool // it does not lean on the line before
	at     time.Time
}

// Open reads a recording and checks every line.
func Open(name string) (*File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	rec, err := read(f, f, maxLine)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("replay %s: %w", name, err), f.Close())
	}
	rec.close = f
	return rec, nil
}

// read checks a recording whose lines have at most limit bytes; all is its content once
// more, for later.
func read(content io.Reader, all io.ReaderAt, limit int) (*File, error) {
	f := &File{r: all}
	in := bufio.NewReaderSize(content, 64<<10)
	var buf []byte
	offset, since := int64(0), 0
	for n := 1; ; n++ {
		body, err := readLine(in, buf[:0], limit)
		buf = body
		switch {
		case errors.Is(err, io.EOF) && len(body) == 0:
			if len(f.lines) == 0 {
				return nil, fmt.Errorf("%w: no snapshot in it", ErrDamaged)
			}
			return f, nil
		case err != nil && !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		l, bad := decode(body)
		if bad == nil {
			bad = f.follows(l, since)
		}
		if bad != nil && errors.Is(err, io.EOF) && n > 1 {
			f.Cut = n // whoever recorded was killed while writing
			return f, nil
		}
		if bad != nil {
			return nil, fmt.Errorf("line %d: %w: %w", n, ErrDamaged, bad)
		}
		since++
		if !l.SincePrevious {
			since = 0
		}
		f.lines = append(f.lines, entry{offset, len(body), !l.SincePrevious, l.Time})
		offset += int64(len(body)) + 1
	}
}

// readLine appends the next line to buf, without its end. It returns io.EOF with the
// last line when that has no end.
func readLine(in *bufio.Reader, buf []byte, limit int) ([]byte, error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(buf)+len(part) > limit {
			return buf, fmt.Errorf("%w: longer than %d bytes", ErrDamaged, limit)
		}
		buf = append(buf, part...)
		switch {
		case err == nil:
			return buf[:len(buf)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return buf, err
		}
	}
}

func decode(body []byte) (line, error) {
	var l line
	if err := json.Unmarshal(body, &l); err != nil {
		return l, err
	}
	if l.Time.IsZero() {
		return l, errors.New("no time in it")
	}
	return l, nil
}

// follows says why a line cannot come next.
func (f *File) follows(l line, since int) error {
	switch {
	case len(f.lines) == 0 && l.SincePrevious:
		return errors.New("begins in the middle of a recording")
	case len(f.lines) > 0 && l.Time.Before(f.lines[len(f.lines)-1].at):
		return errors.New("is older than the line before")
	case l.SincePrevious && since >= maxSince:
		return fmt.Errorf("no complete snapshot among %d lines", maxSince)
	}
	return nil
}

// Len is the number of snapshots, at least one.
func (f *File) Len() int { return len(f.lines) }

// Span returns the times of the first and the last snapshot.
func (f *File) Span() (first, last time.Time) {
	return f.lines[0].at, f.lines[len(f.lines)-1].at
}

// At returns the number, from 0, of the snapshot that was the newest after so much time.
func (f *File) At(after time.Duration) int {
	t := f.lines[0].at.Add(after)
	n := sort.Search(len(f.lines), func(i int) bool { return f.lines[i].at.After(t) })
	return max(n-1, 0)
}

// Snapshot returns snapshot n, from 0.
func (f *File) Snapshot(n int) (cluster.Snapshot, error) {
	if n < 0 || n >= len(f.lines) {
		return cluster.Snapshot{}, fmt.Errorf("replay: no snapshot %d among %d", n, len(f.lines))
	}
	first := n
	for !f.lines[first].whole {
		first--
	}
	var s cluster.Snapshot
	for i := first; i <= n; i++ {
		var err error
		if s, err = f.next(s, i); err != nil {
			return s, err
		}
	}
	return s, nil
}

// next reads snapshot n, given the one before.
func (f *File) next(prev cluster.Snapshot, n int) (cluster.Snapshot, error) {
	e := f.lines[n]
	body := make([]byte, e.length)
	if _, err := f.r.ReadAt(body, e.offset); err != nil {
		return prev, fmt.Errorf("replay: line %d: %w", n+1, err)
	}
	l, err := decode(body)
	if err != nil || l.SincePrevious == e.whole {
		return prev, fmt.Errorf("replay: line %d: %w: it changed since it was checked", n+1, ErrDamaged)
	}
	return merge(prev, l), nil
}

// Close closes the file; players of it must have been closed before.
func (f *File) Close() error {
	if f.close == nil {
		return nil
	}
	return f.close.Close()
}
