package runtime

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// catchUpWithin limits the time that a directory may be behind the store.
const catchUpWithin = 5 * time.Second

var errBehind = fmt.Errorf("the watch is behind the store by more than %s", catchUpWithin)

// directory follows the instances of one endpoint, for all clients of this process. A
// change costs one copy of the list, however many clients there are.
type directory struct {
	found *store.Prefix[registration]
	ready chan struct{} // closed when found is listed, or err is set
	err   error
	done  chan struct{} // closed when the list is no longer kept current
	lost  bool          // registrations lingered at the last change; owned by apply

	clients int // guarded by directories.mu

	mu      sync.Mutex
	listed  *listing
	readers map[chan struct{}]struct{} // capacity 1: told of new listings
}

// listing is the state of a directory at some time. It never changes.
type listing struct {
	instances []cluster.Instance // sorted by id
	revisions []store.Revision   // of their registrations
	version   int                // increases when the instances differ, as opposed to their revisions
	revision  store.Revision
}

// find returns the index of an instance, or where it would be.
func (l *listing) find(id cluster.InstanceID) (int, bool) {
	return slices.BinarySearchFunc(l.instances, id, func(i cluster.Instance, id cluster.InstanceID) int { return cmp.Compare(i.InstanceID, id) })
}

// directoryKey names a directory of this process.
type directoryKey struct {
	store  store.Store
	prefix string
}

var directories = struct {
	mu sync.Mutex
	of map[directoryKey]*directory
}{of: map[directoryKey]*directory{}}

// join returns the directory of a prefix, which lists at least what is registered now.
// The caller must leave it.
func join(ctx context.Context, key directoryKey, log *slog.Logger) (*directory, error) {
	for {
		directories.mu.Lock()
		d := directories.of[key]
		first := d == nil
		if first {
			d = &directory{ready: make(chan struct{}), done: make(chan struct{}), readers: map[chan struct{}]struct{}{}}
			directories.of[key] = d
		}
		d.clients++
		directories.mu.Unlock()
		if first {
			if d.err = d.start(ctx, key, log); d.err != nil {
				directories.mu.Lock()
				delete(directories.of, key)
				directories.mu.Unlock()
			}
			close(d.ready)
		}
		select {
		case <-d.ready:
		case <-ctx.Done():
			d.leave(key)
			return nil, context.Cause(ctx)
		}
		err := d.err
		switch {
		case err == nil && !first:
			err = d.catchUp(ctx, key)
		case err != nil && !first: // whoever began it gave up: try it oneself
			d.leave(key)
			continue
		}
		if err != nil {
			d.leave(key)
			return nil, err
		}
		return d, nil
	}
}

func (d *directory) start(ctx context.Context, key directoryKey, log *slog.Logger) (err error) {
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel) // while it is listed
	d.found, err = store.WatchPrefix(watching, key.store, key.prefix, decodeRegistration, log, store.Linger(store.LingerFor), store.Track())
	if err != nil || !stop() {
		cancel()
		if d.found != nil {
			d.found.Close()
		}
		return cmp.Or(err, context.Cause(ctx))
	}
	d.apply()
	go func() {
		defer close(d.done)
		defer cancel()
		for {
			select {
			case <-d.found.Done():
				return
			case <-d.found.Changed():
				d.apply()
			}
		}
	}()
	return nil
}

// catchUp waits until the directory lists what the store has now: its watch may be a
// moment behind.
func (d *directory) catchUp(ctx context.Context, key directoryKey) error {
	ctx, cancel := context.WithTimeoutCause(ctx, catchUpWithin, errBehind)
	defer cancel()
	kvs, _, err := key.store.List(ctx, key.prefix)
	if err != nil {
		return err
	}
	var newest store.Revision
	for _, kv := range kvs {
		newest = max(newest, kv.ModRevision)
	}
	news := d.read()
	defer d.unread(news)
	for d.list().revision < newest {
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-d.done:
			return ErrClosed
		}
	}
	return nil
}

// leave ends one client's use. The last one ends the watch and waits for it.
func (d *directory) leave(key directoryKey) {
	directories.mu.Lock()
	d.clients--
	last := d.clients == 0
	if last && directories.of[key] == d {
		delete(directories.of, key)
	}
	directories.mu.Unlock()
	if last && d.err == nil { // whoever began it has seen the end of that
		d.found.Close()
		<-d.done
	}
}

// read returns a channel that receives after changes.
func (d *directory) read() chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	news := make(chan struct{}, 1)
	d.readers[news] = struct{}{}
	return news
}

func (d *directory) unread(news chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.readers, news)
}

// list returns the present state.
func (d *directory) list() *listing {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.listed
}

// apply brings the listing up to date with the registrations that changed.
func (d *directory) apply() {
	keys, revision := d.found.Touched()
	old := d.list()
	next := &listing{revision: revision}
	differs := false
	if old == nil || d.lost || d.found.Lingering() {
		d.lost = d.found.Lingering()
		next.fill(d.registered())
		differs = old == nil || !slices.Equal(next.instances, old.instances)
	} else {
		next.instances, next.revisions = slices.Clone(old.instances), slices.Clone(old.revisions)
		for _, key := range keys {
			reg, there := d.found.Get(key)
			differs = next.set(key, reg, there) || differs
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if old != nil {
		next.version = old.version
	}
	if differs {
		next.version++
	}
	d.listed = next
	for news := range d.readers {
		select {
		case news <- struct{}{}:
		default:
		}
	}
}

// registered returns the registrations by key. It omits those that the store has lost if
// their worker has registered again.
func (d *directory) registered() map[string]registration {
	found := d.found.Snapshot()
	again := map[string]bool{}
	for key, reg := range found {
		if !d.found.Lingers(key) {
			again[reg.instance.Worker] = true
		}
	}
	left := make(map[string]registration, len(found))
	for key, reg := range found {
		if reg.instance.Worker == "" || !again[reg.instance.Worker] || !d.found.Lingers(key) {
			left[key] = reg
		}
	}
	return left
}

// fill lists registrations.
func (l *listing) fill(found map[string]registration) {
	all := slices.SortedFunc(maps.Values(found), func(a, b registration) int {
		return cmp.Compare(a.instance.InstanceID, b.instance.InstanceID)
	})
	for _, reg := range all {
		l.instances, l.revisions = append(l.instances, reg.instance), append(l.revisions, reg.revision)
	}
}

// set lists the registration of a key, or that there is none. It reports whether that is
// another instance, as opposed to another registration of the same one.
func (l *listing) set(key string, reg registration, there bool) bool {
	id := reg.instance.InstanceID
	if !there {
		var err error
		if id, err = cluster.ParseInstanceID(key[strings.LastIndexByte(key, '/')+1:]); err != nil {
			return false // it was never listed: its key would not have been that of its instance
		}
	}
	i, known := l.find(id)
	switch {
	case there && known:
		differs := l.instances[i] != reg.instance
		l.instances[i], l.revisions[i] = reg.instance, reg.revision
		return differs
	case there:
		l.instances, l.revisions = slices.Insert(l.instances, i, reg.instance), slices.Insert(l.revisions, i, reg.revision)
	case known:
		l.instances, l.revisions = slices.Delete(l.instances, i, i+1), slices.Delete(l.revisions, i, i+1)
	}
	return there || known
}
