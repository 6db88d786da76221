package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

const (
	// fileQueueLimit is the number of calls that may wait for the lock. Further ones fail.
	fileQueueLimit = 4096
	// fileLockTimeout is the time for which commit waits for the lock before the calls
	// that wait with it fail.
	fileLockTimeout = 2 * time.Second
	// fileYield is the pause after which a process takes the lock again when others wait.
	fileYield = 2 * fileLockPauseMax
)

// fileCall is one call that waits for the lock.
type fileCall struct {
	run  func() // under the lock and File.mu, the file read to its end
	fail func(error)
	done chan struct{} // closed when the call has its result
}

// fileQueue holds the calls of this process. All that wait are done under one lock, and
// their changes are synced at once.
type fileQueue struct {
	wake chan struct{} // capacity 1

	mu    sync.Mutex
	calls []*fileCall
}

func newFileQueue() *fileQueue { return &fileQueue{wake: make(chan struct{}, 1)} }

func (q *fileQueue) add(c *fileCall) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls) >= fileQueueLimit {
		return fmt.Errorf("%w: %d calls wait already", ErrUnavailable, len(q.calls))
	}
	q.calls = append(q.calls, c)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return nil
}

// withdraw removes a call, and reports whether it had not begun.
func (q *fileQueue) withdraw(c *fileCall) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.calls, c)
	if i < 0 {
		return false
	}
	q.calls = slices.Delete(q.calls, i, i+1)
	return true
}

func (q *fileQueue) take() []*fileCall {
	q.mu.Lock()
	defer q.mu.Unlock()
	calls := q.calls
	q.calls = nil
	return calls
}

// callFile has run executed under the lock, with the state as new as the file, and returns
// its result once that is durable.
func callFile[T any](ctx context.Context, f *File, verb, subject string, run func() (T, error)) (T, error) {
	var none, result T
	var err error
	c := &fileCall{done: make(chan struct{})}
	c.run = func() { result, err = run() }
	c.fail = func(why error) { result, err = none, why }
	switch {
	case ctx.Err() != nil:
		return none, f.explain(ctx, verb, subject, context.Cause(ctx))
	case f.life.ctx.Err() != nil:
		return none, f.explain(ctx, verb, subject, ErrClosed)
	}
	limited := ctx
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	if err := f.queue.add(c); err != nil {
		return none, f.explain(ctx, verb, subject, err)
	}
	select {
	case <-c.done:
		return result, f.explain(ctx, verb, subject, err)
	case <-f.life.ctx.Done():
		return none, f.explain(ctx, verb, subject, ErrClosed)
	case <-limited.Done():
	}
	f.queue.withdraw(c)
	if errors.Is(ctx.Err(), context.Canceled) {
		return none, f.explain(ctx, verb, subject, context.Cause(ctx))
	}
	return none, f.explain(ctx, verb, subject, fmt.Errorf("%w: %s: %w", ErrUnavailable, f.dir, context.Cause(limited)))
}

// commit does the calls that wait, again and again until ctx ends.
func (f *File) commit(ctx context.Context) {
	for {
		select {
		case <-f.queue.wake:
		case <-ctx.Done():
			return
		}
		contended, err := f.batch(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if f.health.failed(err, time.Now().Add(f.poll)) {
				f.logger.Warn("the file store does not answer", "dir", f.dir, "err", err)
			}
		default:
			if down, _ := f.health.answered(nil); down > 0 {
				f.logger.Info("the file store is back", "dir", f.dir, "down", down.Round(time.Millisecond))
			}
		}
		if contended {
			sleep(ctx, fileYield)
		}
	}
}

// batch does all calls that wait. Its error is one that kept the store from answering.
// contended is true when other processes wait for the lock.
func (f *File) batch(ctx context.Context) (contended bool, err error) {
	limited, cancel := context.WithTimeout(ctx, fileLockTimeout)
	defer cancel()
	err = f.lock.acquire(limited)
	calls := f.queue.take()
	if err != nil {
		answer(calls, err)
		return false, err
	}
	err = f.run(calls)
	contended = f.lock.release()
	if err != nil {
		answer(calls, err)
		return contended, err
	}
	for _, c := range calls {
		close(c.done)
	}
	return contended, nil
}

// answer fails all calls.
func answer(calls []*fileCall, err error) {
	err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	for _, c := range calls {
		c.fail(err)
		close(c.done)
	}
}

// run does the calls under the lock. When the sync fails, it is unknown which of the changes
// survive a power failure, and the file is replaced before anything else.
func (f *File) run(calls []*fileCall) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.readLocked(true); err != nil {
		return err
	}
	if f.rewrite || f.log.offset > max(f.compact, 4*f.log.snapshot) {
		f.rewrite = true
		if err := f.log.rewrite(f.snapshot()); err != nil {
			return err
		}
		f.rewrite = false
	}
	f.state.observe(time.Now())
	f.unsynced = false
	for _, c := range calls {
		c.run()
	}
	if !f.unsynced {
		return nil
	}
	if err := f.sync(f.log.file); err != nil {
		f.rewrite = true
		return err
	}
	return nil
}

// append writes one change and applies it. Only durable ones are worth a sync.
func (f *File) append(r record, durable bool) error {
	if err := f.log.append(r); err != nil {
		return err
	}
	f.unsynced = f.unsynced || durable
	return f.apply(r)
}

// endLeases ends leases with their keys.
func (f *File) endLeases(ids []cluster.InstanceID) error {
	r := record{Rev: f.state.rev + 1}
	for _, id := range ids {
		if f.state.leases[id] != nil {
			r.End = append(r.End, id.String())
		}
	}
	if len(r.End) == 0 {
		return nil
	}
	return f.append(r, true)
}

// readLocked applies what others have written. Under the lock (exclusive) the file is created
// if it is missing, and mended if a process was killed in the middle of a write.
func (f *File) readLocked(exclusive bool) error {
	for {
		current, err := f.log.current()
		if errors.Is(err, fs.ErrNotExist) {
			if !exclusive {
				return nil
			}
			if err := f.begin(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		var rest []byte
		if f.log.file != nil {
			// A file that was replaced has changes yet that may not have been read.
			rest, err = f.log.read(f.apply)
			if err != nil && current {
				return err
			}
		}
		if !current {
			if err := f.log.open(); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		if len(rest) > 0 && exclusive {
			return f.log.mend(rest)
		}
		return nil
	}
}

// begin makes an empty store. If there was one before, its keys and leases are lost, as when
// an etcd loses its data; revisions still grow.
func (f *File) begin() error {
	rev := f.state.rev
	if f.log.file != nil {
		f.logger.Warn("the file store lost its file", "dir", f.dir)
		rev++
	}
	f.id = rand.Text()
	f.state.keepLeases(nil)
	f.state.replace(nil, rev)
	return f.log.rewrite(f.snapshot())
}
