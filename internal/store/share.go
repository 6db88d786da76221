package store

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// catchUpWithin limits the time that a shared watch may be behind the store.
const catchUpWithin = 5 * time.Second

var errBehind = fmt.Errorf("the watch is behind the store by more than %s", catchUpWithin)

// Shares keeps one watch of each prefix for all readers of a process. A change costs one
// new view, however many readers there are. A watch begins with its first reader and ends
// with its last one.
type Shares[T, V any] struct {
	decode func(KV) (T, error)
	view   func(found *Prefix[T], before V) V
	opts   []WatchOption

	mu sync.Mutex
	of map[shareKey]*shared[T, V]
}

// shareKey names a watch of this process.
type shareKey struct {
	store  Reader
	prefix string
}

// NewShares shares watches as of [WatchPrefix]. view makes of a prefix what readers see. It
// runs after each change, for one change of a prefix at a time, and gets the view before,
// which is zero at first; readers may still use that.
func NewShares[T, V any](decode func(KV) (T, error), view func(found *Prefix[T], before V) V, opts ...WatchOption) *Shares[T, V] {
	return &Shares[T, V]{decode: decode, view: view, opts: opts, of: map[shareKey]*shared[T, V]{}}
}

// shared is one watch.
type shared[T, V any] struct {
	ready chan struct{} // closed when there is a view, or err is set
	err   error
	found *Prefix[T]
	done  chan struct{} // closed when the view is no longer kept current

	users int // guarded by Shares.mu

	shown atomic.Pointer[shown[V]]

	telling sync.Mutex // held while readers are told
	readers map[*reader]struct{}
}

// shown is a view with the revision up to which it has all changes.
type shown[V any] struct {
	view     V
	revision Revision
}

// reader is whoever is told of new views.
type reader struct{ tell func() }

// Share is one reader's part in a watch. The reader must call Leave.
type Share[T, V any] struct {
	all    *Shares[T, V]
	key    shareKey
	of     *shared[T, V]
	first  bool    // this reader began the watch
	reader *reader // nil before OnChange
}

// Join returns once there is a view, and fails only if whoever begins the watch cannot list
// the prefix. Of a watch that others began, the view may be a moment behind the store; see
// [Share.CatchUp]. log is for the watch, if this reader begins it.
func (s *Shares[T, V]) Join(ctx context.Context, from Reader, prefix string, log *slog.Logger) (*Share[T, V], error) {
	for {
		h := s.enter(shareKey{from, prefix})
		if h.first {
			h.of.err = s.start(ctx, h, log)
			close(h.of.ready)
		}
		select {
		case <-h.of.ready:
		case <-ctx.Done():
			h.Leave()
			return nil, context.Cause(ctx)
		}
		err := h.of.err
		if err == nil {
			return h, nil
		}
		h.Leave()
		if h.first {
			return nil, err
		}
		// Whoever began it gave up: try it oneself.
	}
}

// enter takes part in a watch, which may have to be started.
func (s *Shares[T, V]) enter(key shareKey) *Share[T, V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.of[key]
	first := w == nil
	if first {
		w = &shared[T, V]{ready: make(chan struct{}), done: make(chan struct{}), readers: map[*reader]struct{}{}}
		s.of[key] = w
	}
	w.users++
	return &Share[T, V]{all: s, key: key, of: w, first: first}
}

// start begins a watch. If that fails, nobody else finds it.
func (s *Shares[T, V]) start(ctx context.Context, h *Share[T, V], log *slog.Logger) error {
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel) // while it is listed
	found, err := WatchPrefix(watching, h.key.store, h.key.prefix, s.decode, log, s.opts...)
	if err != nil || !stop() {
		cancel()
		if found != nil {
			found.Close()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.of, h.key)
		return cmp.Or(err, context.Cause(ctx))
	}
	w := h.of
	w.found = found
	w.show(s.view)
	go func() {
		defer close(w.done)
		defer cancel()
		for {
			select {
			case <-found.Done():
				return
			case <-found.Changed():
				w.show(s.view)
			}
		}
	}()
	return nil
}

// show makes the view current and tells the readers.
func (w *shared[T, V]) show(view func(*Prefix[T], V) V) {
	next := &shown[V]{revision: w.found.Revision()} // before the view, which may be newer
	var before V
	if old := w.shown.Load(); old != nil {
		before = old.view
	}
	next.view = view(w.found, before)
	w.shown.Store(next)
	w.telling.Lock()
	defer w.telling.Unlock()
	for r := range w.readers {
		r.tell()
	}
}

func (w *shared[T, V]) add(tell func()) *reader {
	w.telling.Lock()
	defer w.telling.Unlock()
	r := &reader{tell}
	w.readers[r] = struct{}{}
	return r
}

func (w *shared[T, V]) remove(r *reader) {
	w.telling.Lock()
	defer w.telling.Unlock()
	delete(w.readers, r)
}

// View returns the newest view.
func (h *Share[T, V]) View() V { return h.of.shown.Load().view }

// OnChange has tell called after each change from now on. tell must not block, because the
// other readers wait, and must not call Leave. It is not called any more when Leave has
// returned. A reader calls OnChange at most once.
func (h *Share[T, V]) OnChange(tell func()) { h.reader = h.of.add(tell) }

// Stale returns [Watcher.Stale] of the watch.
//
//nolint:revive,staticcheck // the order is that of the question: since when, why, until when
func (h *Share[T, V]) Stale() (since time.Time, err error, next time.Time) { return h.of.found.Stale() }

// Done returns a channel that is closed when the view is no longer kept current: the store
// was closed, or all readers have left.
func (h *Share[T, V]) Done() <-chan struct{} { return h.of.done }

// CatchUp waits until the view has what is in the store now. The reader that began the
// watch has nothing to wait for: its view is as new as Join.
func (h *Share[T, V]) CatchUp(ctx context.Context) error {
	if h.first {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, catchUpWithin, errBehind)
	defer cancel()
	newest, err := h.key.store.Newest(ctx, h.key.prefix)
	if err != nil {
		return err
	}
	news := make(chan struct{}, 1)
	r := h.of.add(func() {
		select {
		case news <- struct{}{}:
		default:
		}
	})
	defer h.of.remove(r)
	for h.of.shown.Load().revision < newest {
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-h.of.done:
			return ErrClosed
		}
	}
	return nil
}

// Leave ends the reader's part. The last one ends the watch and waits for it.
func (h *Share[T, V]) Leave() {
	if h.reader != nil {
		h.of.remove(h.reader)
	}
	h.all.mu.Lock()
	h.of.users--
	last := h.of.users == 0
	if last && h.all.of[h.key] == h.of {
		delete(h.all.of, h.key)
	}
	h.all.mu.Unlock()
	if last && h.of.err == nil { // whoever began it has seen the end of that
		h.of.found.Close()
		<-h.of.done
	}
}
