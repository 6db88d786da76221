package store

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Prefix is a typed map of the values under a watched prefix. It stays current until it
// is closed.
type Prefix[T any] struct {
	of      Reader
	prefix  string
	linger  time.Duration
	same    func(before, after T) bool // nil: values are never the same
	watcher *Watcher
	decode  func(KV) (T, error)
	log     *slog.Logger
	changed chan struct{} // capacity 1, never closed
	done    chan struct{} // closed when run has returned

	mu       sync.Mutex
	values   map[string]T
	lingers  map[string]time.Time // end of lingering, by key of a value that the store lost
	expiry   *time.Timer          // nil unless keys linger
	snapshot map[string]T         // copy of values handed out, nil after a change
	revision Revision
	moved    chan struct{}       // closed by the next event; nil unless CatchUp waits
	touched  map[string]struct{} // keys changed since the last Touched; nil without Track
}

// WatchOption changes how [WatchPrefix] follows a prefix.
type WatchOption func(*watchOptions)

type watchOptions struct {
	linger time.Duration
	same   any // func(before, after T) bool
	track  bool
}

// LingerFor is how long what registers itself is still taken to be there after the store has
// lost it, as opposed to a deletion. Who lives registers again within that time: it notices
// the loss within a third of its lease.
const LingerFor = 30 * time.Second

// Linger keeps values for d that vanish without a deletion: they are missing when the
// prefix is listed again. The store may have lost its data, and the owners of the keys
// may be writing them again. See [Prefix.Lingers].
func Linger(d time.Duration) WatchOption { return func(o *watchOptions) { o.linger = d } }

// Track keeps the keys that change, for [Prefix.Touched].
func Track() WatchOption { return func(o *watchOptions) { o.track = true } }

// Same keeps [Prefix.Changed] silent when a key is written with a value that is the same to
// the reader. Values are up to date in any case.
func Same[T any](same func(before, after T) bool) WatchOption {
	return func(o *watchOptions) { o.same = same }
}

// WatchPrefix follows a prefix until ctx ends, or the Prefix or the store is closed. It
// returns once the first snapshot is complete, and fails only if that cannot be read. A
// value that does not decode is logged, and the last good value of its key stays.
func WatchPrefix[T any](ctx context.Context, s Reader, prefix string, decode func(KV) (T, error), log *slog.Logger, opts ...WatchOption) (*Prefix[T], error) {
	var o watchOptions
	for _, opt := range opts {
		opt(&o)
	}
	same, ok := o.same.(func(before, after T) bool)
	if o.same != nil && !ok {
		return nil, fmt.Errorf("watch %s: values are compared by a %T", prefix, o.same)
	}
	watcher, err := s.Watch(ctx, prefix)
	if err != nil {
		return nil, err
	}
	p := &Prefix[T]{
		of:      s,
		prefix:  prefix,
		linger:  o.linger,
		same:    same,
		watcher: watcher,
		decode:  decode,
		log:     log,
		changed: make(chan struct{}, 1),
		done:    make(chan struct{}),
		values:  map[string]T{},
		lingers: map[string]time.Time{},
	}
	if o.track {
		p.touched = map[string]struct{}{}
	}
	first, open := <-watcher.Events()
	if !open {
		watcher.Close()
		return nil, fmt.Errorf("watch %s: %w", prefix, cmp.Or(context.Cause(ctx), ErrClosed))
	}
	p.apply(first)
	go func() {
		defer close(p.done)
		for ev := range watcher.Events() {
			p.apply(ev)
		}
	}()
	return p, nil
}

// Snapshot returns the current values by key. The map is shared: do not change it.
func (p *Prefix[T]) Snapshot() map[string]T {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.snapshot == nil {
		p.snapshot = maps.Clone(p.values)
	}
	return p.snapshot
}

// Touched returns the keys that were changed or deleted since the last call, once each and
// in no order, and the revision that they belong to; see [Track]. It serves one reader.
func (p *Prefix[T]) Touched() ([]string, Revision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keys := slices.Collect(maps.Keys(p.touched))
	clear(p.touched)
	return keys, p.revision
}

// Lingering reports whether any key lingers; see [Linger].
func (p *Prefix[T]) Lingering() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.lingers) > 0
}

// touchLocked notes that a key changed.
func (p *Prefix[T]) touchLocked(key string) {
	if p.touched != nil {
		p.touched[key] = struct{}{}
	}
}

// Get returns the value of one key.
func (p *Prefix[T]) Get(key string) (T, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := p.values[key]
	return v, ok
}

// Revision returns the store revision that the values belong to.
func (p *Prefix[T]) Revision() Revision {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.revision
}

// CatchUp waits until the values have what is in the store now, and reports whether it had
// to wait. Each prefix has its own watch: what one of them shows may be older than what
// another one does. Deletions are not waited for.
func (p *Prefix[T]) CatchUp(ctx context.Context) (waited bool, err error) {
	newest, err := p.of.Newest(ctx, p.prefix)
	if err != nil {
		return false, err
	}
	for {
		moved, revision := p.behind(newest)
		if moved == nil {
			return waited, nil
		}
		waited = true
		select {
		case <-moved:
		case <-p.done:
			return waited, ErrClosed
		case <-ctx.Done():
			return waited, fmt.Errorf("the view of %s is of revision %d, the store is at %d: %w", p.prefix, revision, newest, context.Cause(ctx))
		}
	}
}

// behind returns a channel that the next event closes if the values are older than a
// revision, else nil.
func (p *Prefix[T]) behind(newest Revision) (<-chan struct{}, Revision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.revision >= newest {
		return nil, p.revision
	}
	if p.moved == nil {
		p.moved = make(chan struct{})
	}
	return p.moved, p.revision
}

// Changed receives after changes, except those excluded by [Same]; several may come as
// one. It serves one reader.
func (p *Prefix[T]) Changed() <-chan struct{} { return p.changed }

// Stale returns [Watcher.Stale] of the underlying watch.
//
//nolint:revive,staticcheck // the order is that of the question: since when, why, until when
func (p *Prefix[T]) Stale() (since time.Time, err error, next time.Time) {
	return p.watcher.Stale()
}

// Done returns a channel that is closed when the map is no longer kept current.
func (p *Prefix[T]) Done() <-chan struct{} { return p.done }

// Lingers reports whether the store has lost the key without a deletion; see [Linger].
func (p *Prefix[T]) Lingers(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, lingers := p.lingers[key]
	return lingers
}

// Close ends the watch and waits for its goroutines. The values stay readable.
func (p *Prefix[T]) Close() {
	p.watcher.Close()
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.expiry != nil {
		p.expiry.Stop()
	}
}

func (p *Prefix[T]) apply(ev Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.revision, p.snapshot = ev.Revision, nil
	if p.moved != nil {
		close(p.moved)
		p.moved = nil
	}
	if ev.Type != Resync {
		p.touchLocked(ev.KV.Key)
	}
	switch ev.Type {
	case Put:
		_, lingered := p.lingers[ev.KV.Key]
		delete(p.lingers, ev.KV.Key)
		before, known := p.values[ev.KV.Key]
		p.setLocked(p.values, ev.KV)
		if p.same != nil && known && !lingered && p.same(before, p.values[ev.KV.Key]) {
			return
		}
	case Delete:
		delete(p.lingers, ev.KV.Key)
		delete(p.values, ev.KV.Key)
	case Resync:
		next := make(map[string]T, len(ev.All))
		for _, kv := range ev.All {
			p.setLocked(next, kv)
			delete(p.lingers, kv.Key)
			p.touchLocked(kv.Key)
		}
		for key := range p.values { // those that are gone
			p.touchLocked(key)
		}
		p.lingerLocked(next)
		p.values = next
	}
	p.changedLocked()
}

// lingerLocked keeps the lost values for their time: those missing in next without a
// deletion.
func (p *Prefix[T]) lingerLocked(next map[string]T) {
	if p.linger <= 0 {
		return
	}
	now := time.Now()
	for key, v := range p.values {
		if _, there := next[key]; there {
			continue
		}
		if _, already := p.lingers[key]; !already {
			p.lingers[key] = now.Add(p.linger)
		}
		next[key] = v
	}
	if len(p.lingers) > 0 && p.expiry == nil {
		p.expiry = time.AfterFunc(p.linger, p.expire)
	}
}

// expire removes the values whose time to linger is over.
func (p *Prefix[T]) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, left := time.Now(), time.Duration(0)
	for key, until := range p.lingers {
		if wait := until.Sub(now); wait > 0 {
			left = max(left, wait)
			continue
		}
		delete(p.lingers, key)
		delete(p.values, key)
		p.touchLocked(key)
	}
	p.expiry = nil
	if left > 0 {
		p.expiry = time.AfterFunc(left, p.expire)
	}
	p.changedLocked()
}

func (p *Prefix[T]) changedLocked() {
	p.snapshot = nil
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// setLocked decodes kv into the map, or keeps the last good value.
func (p *Prefix[T]) setLocked(into map[string]T, kv KV) {
	v, err := p.decode(kv)
	if err == nil {
		into[kv.Key] = v
		return
	}
	last, known := p.values[kv.Key]
	if known {
		into[kv.Key] = last
	}
	p.log.Warn("value does not decode", "key", kv.Key, "revision", int64(kv.ModRevision), "kept_last", known, "err", err)
}
