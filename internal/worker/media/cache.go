package media

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"

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

func newCache(limit int64) *cache {
	return &cache{limit: limit, byKey: map[blockhash.Key]*list.Element{}, calls: map[blockhash.Key]*call{}}
}

// errUnwanted ends a computation that nobody waits for any more.
var errUnwanted = errors.New("nobody wants the embeddings any more")

// get returns the embeddings of a key, n rows. If they are not here, load computes them, once
// for all who ask meanwhile; its context ends when none of them waits any more. hit says that
// this caller caused no computation.
func (c *cache) get(ctx context.Context, key blockhash.Key, n int, load func(context.Context) ([][]float32, error)) (rows [][]float32, hit bool, err error) {
	c.mu.Lock()
	if e := c.byKey[key]; e != nil {
		c.used.MoveToFront(e)
		c.count.Hits++
		c.mu.Unlock()
		rows = e.Value.(*entry).rows
		return rows, true, checkRows(rows, n)
	}
	k := c.calls[key]
	if hit = k != nil; hit {
		c.count.Hits++
	} else {
		c.count.Misses++
		k = &call{done: make(chan struct{})}
		c.calls[key] = k
		run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		k.cancel = cancel
		go c.run(run, key, k, load)
	}
	k.users++
	c.mu.Unlock()
	defer c.leave(key, k)
	select {
	case <-k.done:
		if k.err != nil {
			return nil, hit, k.err
		}
		return k.rows, hit, checkRows(k.rows, n)
	case <-ctx.Done():
		return nil, hit, context.Cause(ctx)
	}
}

func checkRows(rows [][]float32, n int) error {
	if len(rows) != n {
		return fmt.Errorf("%w: %d and %d", ErrRows, len(rows), n)
	}
	return nil
}

// run computes the embeddings of a key for those who wait.
func (c *cache) run(ctx context.Context, key blockhash.Key, k *call, load func(context.Context) ([][]float32, error)) {
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
