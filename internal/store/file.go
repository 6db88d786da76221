package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/cluster"
)

const (
	// DefaultFilePoll is the default of [FileConfig.Poll].
	DefaultFilePoll = 250 * time.Millisecond
	// fileCompactAt is the least length of a file that is replaced by a snapshot.
	fileCompactAt = 1 << 20
)

// FileConfig says where a [File] store is and how it is used.
type FileConfig struct {
	// Dir is the directory of the store, on this machine or on a file system that several
	// machines share. It is created if it is missing, and belongs to the store alone.
	Dir string
	// Poll is the longest time after which changes by others are seen: where the file
	// system announces them, as one of this machine does, they are seen at once. Default
	// [DefaultFilePoll].
	Poll    time.Duration
	Timeout time.Duration // of one call; default [DefaultTimeout]
}

// File is a [Store] in a directory, for processes of one machine or of several that share a
// file system. DESIGN.md says how it works and what it guarantees.
type File struct {
	dir     string
	timeout time.Duration
	poll    time.Duration
	compact int64 // fileCompactAt, except in tests
	deaf    bool  // for tests: nothing announces changes, as on a shared file system
	sync    func(*os.File) error
	logger  *slog.Logger
	life    *lifetime
	health  *health
	queue   *fileQueue
	lock    *fileLock // owned by commit

	mu      sync.Mutex // guards what follows
	log     fileLog
	id      string // of the data that was read last
	state   replica
	rewrite bool // a sync failed: what the file has is in doubt until it is replaced
	// unsynced is true when the calls under way have written what must be durable.
	unsynced bool
}

var _ Store = (*File)(nil)

// NewFile opens the store in a directory, or makes an empty one. Any number of processes may
// have it open. It fails on a directory that cannot be created or written, and on systems
// without flock.
func NewFile(cfg FileConfig, log *slog.Logger) (*File, error) {
	f, err := newFile(cfg, log)
	if err != nil {
		return nil, fmt.Errorf("open the file store: %w", err)
	}
	f.start()
	return f, nil
}

// newFile returns a store that start starts.
func newFile(cfg FileConfig, log *slog.Logger) (*File, error) {
	if cfg.Dir == "" {
		return nil, errors.New("no directory")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	f := &File{
		dir:     dir,
		timeout: withDefault(cfg.Timeout, DefaultTimeout),
		poll:    withDefault(cfg.Poll, DefaultFilePoll),
		compact: fileCompactAt,
		sync:    (*os.File).Sync,
		logger:  log,
		life:    newLifetime(),
		health:  newHealth(),
		queue:   newFileQueue(),
		lock:    &fileLock{dir: dir},
		log:     fileLog{path: filepath.Join(dir, fileLogName)},
		state:   newReplica(),
	}
	return f, f.lock.open()
}

func (f *File) start() {
	for _, run := range []func(context.Context){f.commit, f.follow} {
		finished, err := f.life.begin()
		if err != nil { // closed already
			return
		}
		go func() {
			defer finished()
			run(f.life.ctx)
		}()
	}
}

// Dir returns the directory of the store as an absolute path.
func (f *File) Dir() string { return f.dir }

// Get implements [Store].
func (f *File) Get(ctx context.Context, key string) (KV, error) {
	return callFile(ctx, f, "get", key, func() (KV, error) {
		kv, ok := f.state.data[key]
		if !ok {
			return KV{}, ErrNotFound
		}
		return kv, nil
	})
}

// listed is what List returns.
type listed struct {
	kvs []KV
	rev Revision
}

// List implements [Store].
func (f *File) List(ctx context.Context, prefix string) ([]KV, Revision, error) {
	l, err := callFile(ctx, f, "list", prefix, func() (listed, error) {
		return listed{f.state.list(prefix), f.state.rev}, nil
	})
	return l.kvs, l.rev, err
}

// Newest implements [Store].
func (f *File) Newest(ctx context.Context, prefix string) (Revision, error) {
	return callFile(ctx, f, "find the newest of", prefix, func() (Revision, error) { return f.state.newest(prefix), nil })
}

// Watch implements [Store].
func (f *File) Watch(ctx context.Context, prefix string) (*Watcher, error) {
	watching, cancel := context.WithCancel(ctx)
	w, err := callFile(ctx, f, "watch", prefix, func() (*Watcher, error) {
		// Whoever reads the file pushes changes, so the source only unregisters.
		w, err := newWatcher(watching, f.life, f.state.list(prefix), f.state.rev, f.health.trouble, func(ctx context.Context, w *Watcher) {
			<-ctx.Done()
			cancel()
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.state.watchers, w)
		})
		if err == nil {
			f.state.watchers[w] = prefix
		}
		return w, err
	})
	if err != nil {
		cancel() // also a watch that began too late
	}
	return w, err
}

// Create implements [Store].
func (f *File) Create(ctx context.Context, key string, value []byte, opts ...PutOption) (Revision, error) {
	return f.write(ctx, "create", key, value, condition{absent: true}, opts)
}

// createUnless implements [exclusiveCreator].
func (f *File) createUnless(ctx context.Context, key string, value []byte, blockers []string, opts []PutOption) (Revision, error) {
	return f.write(ctx, "create", key, value, condition{absent: true, blockers: blockers}, opts)
}

// Put implements [Store].
func (f *File) Put(ctx context.Context, key string, value []byte, opts ...PutOption) (Revision, error) {
	return f.write(ctx, "put", key, value, condition{}, opts)
}

// CompareAndSwap implements [Store].
func (f *File) CompareAndSwap(ctx context.Context, key string, expect Revision, value []byte, opts ...PutOption) (Revision, error) {
	return f.write(ctx, "swap", key, value, condition{swap: true, expect: expect}, opts)
}

func (f *File) write(ctx context.Context, verb, key string, value []byte, c condition, opts []PutOption) (Revision, error) {
	o := applyPutOptions(opts)
	if key == "" || !utf8.ValidString(key) { // JSON could not keep it as it is
		return 0, fmt.Errorf("%s %q: a key is text in UTF-8, and not empty", verb, key)
	}
	value = bytes.Clone(value)
	return callFile(ctx, f, verb, key, func() (Revision, error) {
		if err := f.state.allowed(key, c, o.lease); err != nil {
			return 0, err
		}
		put := toFileKV(KV{Key: key, Value: value, Lease: o.lease})
		rev := f.state.rev + 1
		return rev, f.append(record{Rev: rev, Put: &put}, true)
	})
}

// Delete implements [Store].
func (f *File) Delete(ctx context.Context, key string) error {
	_, err := callFile(ctx, f, "delete", key, func() (struct{}, error) {
		if _, ok := f.state.data[key]; !ok {
			return struct{}{}, nil
		}
		return struct{}{}, f.append(record{Rev: f.state.rev + 1, Delete: key}, true)
	})
	return err
}

// GrantLease implements [Store].
func (f *File) GrantLease(ctx context.Context, ttl time.Duration) (Lease, error) {
	if ttl <= 0 {
		return Lease{}, fmt.Errorf("grant lease: ttl %s is not positive", ttl)
	}
	return callFile(ctx, f, "grant lease", "", func() (Lease, error) {
		id := newLeaseID()
		for f.state.leases[id] != nil {
			id = newLeaseID()
		}
		return Lease{ID: id, TTL: ttl}, f.append(record{Hold: &fileLease{ID: id.String(), TTL: ttl}}, true)
	})
}

// newLeaseID returns a random id. Like those of etcd, ids are positive as signed numbers.
func newLeaseID() cluster.InstanceID { return cluster.InstanceID(rand.Int64N(1<<63-1) + 1) }

// keepAlive implements [leaseServer].
func (f *File) keepAlive(ctx context.Context, id cluster.InstanceID) (time.Duration, error) {
	return callFile(ctx, f, "keep alive lease", id.String(), func() (time.Duration, error) {
		lease, err := f.state.lease(id)
		if err != nil {
			return 0, err
		}
		return lease.ttl, f.append(record{Hold: &fileLease{ID: id.String(), TTL: lease.ttl, Beats: lease.beats + 1}}, false)
	})
}

// KeepLease implements [Store].
func (f *File) KeepLease(ctx context.Context, ttl time.Duration, log *slog.Logger) (*LeaseKeeper, error) {
	return keepLease(ctx, f.life, f, ttl, log)
}

// LeaseTTL implements [Store]. The time left is what this process knows: of a lease that it
// has not seen renewed yet, it is the TTL less the time since the store was opened.
func (f *File) LeaseTTL(ctx context.Context, id cluster.InstanceID) (left, granted time.Duration, err error) {
	type ttl struct{ left, granted time.Duration }
	t, err := callFile(ctx, f, "look up lease", id.String(), func() (ttl, error) {
		lease, err := f.state.lease(id)
		if err != nil {
			return ttl{}, err
		}
		return ttl{f.state.left(lease), lease.ttl}, nil
	})
	return t.left, t.granted, err
}

// RevokeLease implements [Store].
func (f *File) RevokeLease(ctx context.Context, id cluster.InstanceID) error {
	_, err := callFile(ctx, f, "revoke lease", id.String(), func() (struct{}, error) {
		if _, err := f.state.lease(id); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, f.endLeases([]cluster.InstanceID{id})
	})
	return err
}

// Leases implements [Store].
func (f *File) Leases(ctx context.Context) ([]cluster.InstanceID, error) {
	return callFile(ctx, f, "list leases", "", func() ([]cluster.InstanceID, error) {
		return slices.Sorted(maps.Keys(f.state.leases)), nil
	})
}

// WhileAnswering implements [Store].
func (f *File) WhileAnswering(ctx context.Context) (context.Context, context.CancelFunc) {
	return f.health.whileAnswering(ctx)
}

// Ping implements [Store].
func (f *File) Ping(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	_, err := callFile(ctx, f, "ping", "", func() (struct{}, error) { return struct{}{}, nil })
	return time.Since(start), err
}

// Close implements [Store]. It waits for a write under way.
func (f *File) Close() error {
	if !f.life.close() {
		return nil
	}
	f.health.stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log.close()
	f.lock.close()
	return nil
}

// explain says what failed.
func (f *File) explain(ctx context.Context, verb, subject string, err error) error {
	if subject != "" {
		verb += " " + subject
	}
	var path *os.PathError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrUnavailable):
	case errors.As(err, &path): // from the file system, not from the state
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", verb, err)
}
