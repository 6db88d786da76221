package media

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dynctl/dynctl/internal/blockhash"
)

// ErrRows means that embeddings do not fill the positions that a prompt has for them.
var ErrRows = errors.New("another number of embeddings than positions")

// cache keeps embeddings by key, those used last, and computes each once.
type cache struct {
	limit int64 // bytes

	mu    sync.Mutex
	bytes int64
	byKey map[blockhash.Key]*list.Element // of entry
	used  list.List                       // most recently used first
	calls map[blockhash.Key]*call
	count CacheStats

	stopped   bool
	running   sync.WaitGroup // computations
	computing atomic.Int32   // of them
}

// CacheStats counts what a cache did.
type CacheStats struct {
	Hits, Misses, Evicted uint64 // embeddings of one part
	Entries               int
	Bytes, Limit          int64
}

type entry struct {
	key   blockhash.Key
	rows  [][]float32
	bytes int64
}

// call is a computation that somebody waits for.
type call struct {
	done   chan struct{}
	cancel context.CancelCauseFunc
	users  int // guarded by cache.mu

	rows [][]float32 // after done
	err  error
}

// has reports whether embeddings are here, or are being computed, and leaves their order of use.
func (c *cache) has(key blockhash.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byKey[key] != nil || c.calls[key] != nil
}

func newCache(limit int64) *cache {
	return &cache{limit: limit, byKey: map[blockhash.Key]*list.Element{}, calls: map[blockhash.Key]*call{}}
}

// Reasons for which a computation ends early.
var (
	errUnwanted = errors.New("nobody wants the embeddings any more")
	errStopped  = fmt.Errorf("%w: it stops", ErrNoEncoder)
)

// get returns the embeddings of a key, n rows. If they are not here, load computes them, once
// for all who ask meanwhile; its context ends when none of them waits any more. hit says that
// this caller caused no computation.
//
// A failure that is not the content's is its caller's alone, whose frontend may have gone:
// the others try again with a load of their own.
func (c *cache) get(ctx context.Context, key blockhash.Key, n int, load func(context.Context) ([][]float32, error)) (rows [][]float32, hit bool, err error) {
	for {
		rows, hit, err = c.join(ctx, key, load)
		switch {
		case err == nil:
			return rows, hit, checkRows(rows, n)
		case !hit || final(err) || ctx.Err() != nil:
			return nil, hit, err
		}
	}
}

// join waits for the embeddings of a key, and for a computation that others began if there is
// one.
func (c *cache) join(ctx context.Context, key blockhash.Key, load func(context.Context) ([][]float32, error)) (rows [][]float32, hit bool, err error) {
	c.mu.Lock()
	if e := c.byKey[key]; e != nil {
		c.used.MoveToFront(e)
		c.count.Hits++
		c.mu.Unlock()
		return e.Value.(*entry).rows, true, nil
	}
	k := c.calls[key]
	if hit = k != nil; hit {
		c.count.Hits++
	} else {
		if c.stopped {
			c.mu.Unlock()
			return nil, false, errStopped
		}
		c.count.Misses++
		k = &call{done: make(chan struct{})}
		c.calls[key] = k
		run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		k.cancel = cancel
		c.computing.Add(1)
		c.running.Go(func() { c.run(run, key, k, load) })
	}
	k.users++
	c.mu.Unlock()
	defer c.leave(key, k)
	select {
	case <-k.done:
		return k.rows, hit, k.err
	case <-ctx.Done():
		return nil, hit, context.Cause(ctx)
	}
}

// stop ends all computations and waits for them. Afterwards there are no new ones.
func (c *cache) stop() {
	c.mu.Lock()
	c.stopped = true
	for _, k := range c.calls {
		k.cancel(errStopped)
	}
	c.mu.Unlock()
	c.running.Wait()
}

func checkRows(rows [][]float32, n int) error {
	if len(rows) != n {
		return fmt.Errorf("%w: %d and %d", ErrRows, len(rows), n)
	}
	return nil
}

// run computes the embeddings of a key for those who wait.
func (c *cache) run(ctx context.Context, key blockhash.Key, k *call, load func(context.Context) ([][]float32, error)) {
	defer c.computing.Add(-1)
	rows, err := load(ctx)
	k.cancel(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	k.rows, k.err = rows, err
	if c.calls[key] == k {
		delete(c.calls, key)
	}
	if err == nil {
		c.add(key, rows)
	}
	close(k.done)
}

// leave takes one who waits away. The last one ends the computation, and whoever comes next
// begins another.
func (c *cache) leave(key blockhash.Key, k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.users--; k.users == 0 {
		k.cancel(errUnwanted)
		if c.calls[key] == k {
			delete(c.calls, key)
		}
	}
}

// add keeps embeddings, and drops those unused longest. What is larger than the cache is not
// kept.
func (c *cache) add(key blockhash.Key, rows [][]float32) {
	size := bytesOf(rows)
	if size > c.limit || c.byKey[key] != nil {
		return
	}
	c.byKey[key] = c.used.PushFront(&entry{key, rows, size})
	for c.bytes += size; c.bytes > c.limit; {
		last := c.used.Remove(c.used.Back()).(*entry)
		delete(c.byKey, last.key)
		c.bytes -= last.bytes
		c.count.Evicted++
	}
}

func (c *cache) stats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.count
	st.Entries, st.Bytes, st.Limit = len(c.byKey), c.bytes, c.limit
	return st
}

// rowOverhead is what a row takes beside its values.
const rowOverhead = 24

func bytesOf(rows [][]float32) (n int64) {
	for _, row := range rows {
		n += int64(4*len(row)) + rowOverhead
	}
	return n
}
