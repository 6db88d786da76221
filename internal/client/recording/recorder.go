package recording

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// keyframe is the interval, in lines, at which a line is complete.
const keyframe = 60

// Recorder is a [client.Source] that writes the snapshots of another one to a file as
// they pass.
type Recorder struct {
	inner client.Source
	name  string
	file  *os.File
	out   chan cluster.Snapshot // capacity 1, the newest; closed when inner is
	stop  chan struct{}         // closed once by Close
	once  sync.Once
	wg    sync.WaitGroup

	mu  sync.Mutex
	err error // why recording stopped; guarded by mu

	// Used by run only.
	w     *bufio.Writer
	prev  cluster.Snapshot
	since int // lines since the last complete one; 0: none yet
}

var _ client.Source = (*Recorder)(nil)

// Record writes the snapshots of source, which it owns from now on, to a new file. A
// file that is there already is not touched.
func Record(source client.Source, name string) (*Recorder, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	r := &Recorder{inner: source, name: name, file: f, out: make(chan cluster.Snapshot, 1), stop: make(chan struct{}), w: bufio.NewWriterSize(f, 64<<10)}
	r.wg.Go(r.run)
	return r, nil
}

func (r *Recorder) run() {
	defer close(r.out)
	for {
		var s cluster.Snapshot
		var ok bool
		select {
		case s, ok = <-r.inner.Snapshots():
		case <-r.stop:
			return
		}
		if !ok {
			return
		}
		if r.Err() == nil {
			r.fail(r.write(s))
		}
		if err := r.Err(); err != nil {
			s.Notices = append([]string{err.Error()}, s.Notices...)
		}
		select {
		case <-r.out: // nobody has read the older one
		default:
		}
		r.out <- s
	}
}

// write appends one snapshot.
func (r *Recorder) write(s cluster.Snapshot) error {
	if r.since > 0 && s.Time.Before(r.prev.Time) {
		return errors.New("the clock went back")
	}
	l, ok := line{Snapshot: s}, false
	if r.since > 0 && r.since < keyframe {
		if l, ok = shorten(r.prev, s); !ok {
			l = line{Snapshot: s}
		}
	}
	body, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, _ = r.w.Write(body) // Flush returns the error
	_ = r.w.WriteByte('\n')
	if err := r.w.Flush(); err != nil {
		return err
	}
	if r.since++; !l.SincePrevious {
		r.since = 1
	}
	r.prev = s
	r.prev.Notices = slices.Clone(s.Notices)
	return nil
}

func (r *Recorder) fail(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = fmt.Errorf("recording to %s stopped: %w", r.name, err)
	}
}

// Err says why recording stopped; snapshots go on without it.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Snapshots implements [client.Source].
func (r *Recorder) Snapshots() <-chan cluster.Snapshot { return r.out }

// SetInterval implements [client.Source].
func (r *Recorder) SetInterval(d time.Duration) { r.inner.SetInterval(d) }

// Inspect implements [client.Source].
func (r *Recorder) Inspect(worker string) { r.inner.Inspect(worker) }

// Log implements [client.Source].
func (r *Recorder) Log(ctx context.Context, name string, tail int, write func([]byte) error) error {
	return r.inner.Log(ctx, name, tail, write)
}

// Act implements [client.Source].
func (r *Recorder) Act(ctx context.Context, a client.Action) error { return r.inner.Act(ctx, a) }

// ReadOnly implements [client.Source].
func (r *Recorder) ReadOnly() string { return r.inner.ReadOnly() }

// Close ends recording and the source. It returns what kept the recording from being
// complete.
func (r *Recorder) Close() error {
	var err error
	r.once.Do(func() {
		close(r.stop)
		r.wg.Wait()
		err = errors.Join(r.inner.Close(), r.file.Close())
	})
	return errors.Join(r.Err(), err)
}
