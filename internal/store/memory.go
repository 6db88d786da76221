package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Memory is a [Store] inside one process, for single-process clusters and for tests. It
// fulfills the whole interface, including leases, and can simulate an outage (see
// [Memory.SetOutage] and [Memory.FallSilent]).
type Memory struct {
	life  *lifetime
	clock Clock

	mu        sync.Mutex
	rev       Revision
	data      map[string]KV
	leases    map[cluster.InstanceID]*memoryLease
	lastLease cluster.InstanceID
	watchers  map[*Watcher]string // prefix of each
	outage    trouble             // since is zero when the store answers
	silent    silence             // over is nil when the store never fell silent
}

// firstMemoryLease is the first lease id. Like etcd's ids it is beyond 2^53, so that
// tests detect an id that passed through a float.
const firstMemoryLease cluster.InstanceID = 0x694d_9814_7d54_0001

// errOutage is the cause of ErrUnavailable during a simulated outage.
var errOutage = errors.New("memory store: outage")

// NewMemory returns an empty store. A nil clock means [SystemClock].
func NewMemory(clock Clock) *Memory {
	if clock == nil {
		clock = SystemClock{}
	}
	return &Memory{
		life:      newLifetime(),
		clock:     clock,
		data:      map[string]KV{},
		leases:    map[cluster.InstanceID]*memoryLease{},
		lastLease: firstMemoryLease - 1,
		watchers:  map[*Watcher]string{},
	}
}

var _ Store = (*Memory)(nil)

// enter locks the store for one operation, or returns the error that prevents it.
func (m *Memory) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if m.life.ctx.Err() != nil {
		return ErrClosed
	}
	if err := m.await(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	if !m.outage.since.IsZero() {
		m.mu.Unlock()
		return fmt.Errorf("%w: %w", ErrUnavailable, errOutage)
	}
	return nil
}

// Get implements [Store].
func (m *Memory) Get(ctx context.Context, key string) (KV, error) {
	if err := m.enter(ctx); err != nil {
		return KV{}, fmt.Errorf("get %s: %w", key, err)
	}
	defer m.mu.Unlock()
	kv, ok := m.data[key]
	if !ok {
		return KV{}, fmt.Errorf("get %s: %w", key, ErrNotFound)
	}
	return kv, nil
}

// List implements [Store].
func (m *Memory) List(ctx context.Context, prefix string) ([]KV, Revision, error) {
	if err := m.enter(ctx); err != nil {
		return nil, 0, fmt.Errorf("list %s: %w", prefix, err)
	}
	defer m.mu.Unlock()
	return m.listLocked(prefix), m.rev, nil
}

// Newest implements [Store].
func (m *Memory) Newest(ctx context.Context, prefix string) (rev Revision, err error) {
	if err := m.enter(ctx); err != nil {
		return 0, fmt.Errorf("find the newest of %s: %w", prefix, err)
	}
	defer m.mu.Unlock()
	for key, kv := range m.data {
		if strings.HasPrefix(key, prefix) {
			rev = max(rev, kv.ModRevision)
		}
	}
	return rev, nil
}

func (m *Memory) listLocked(prefix string) []KV {
	found := make(map[string]KV)
	for key, kv := range m.data {
		if strings.HasPrefix(key, prefix) {
			found[key] = kv
		}
	}
	return sortedKVs(found)
}

// Create implements [Store].
func (m *Memory) Create(ctx context.Context, key string, value []byte, opts ...PutOption) (Revision, error) {
	return m.createUnless(ctx, key, value, nil, opts)
}

// createUnless implements [exclusiveCreator].
func (m *Memory) createUnless(ctx context.Context, key string, value []byte, blockers []string, opts []PutOption) (Revision, error) {
	return m.write(ctx, "create", key, value, opts, func(_ KV, exists bool) error {
		if exists {
			return ErrExists
		}
		for _, blocker := range blockers {
			if len(m.listLocked(blocker)) > 0 {
				return ErrConflict
			}
		}
		return nil
	})
}

// Put implements [Store].
func (m *Memory) Put(ctx context.Context, key string, value []byte, opts ...PutOption) (Revision, error) {
	return m.write(ctx, "put", key, value, opts, func(KV, bool) error { return nil })
}

// CompareAndSwap implements [Store].
func (m *Memory) CompareAndSwap(ctx context.Context, key string, expect Revision, value []byte, opts ...PutOption) (Revision, error) {
	return m.write(ctx, "swap", key, value, opts, func(current KV, _ bool) error {
		if current.ModRevision != expect { // 0 when absent
			return ErrConflict
		}
		return nil
	})
}

func (m *Memory) write(ctx context.Context, verb, key string, value []byte, opts []PutOption, allow func(current KV, exists bool) error) (Revision, error) {
	o := applyPutOptions(opts)
	if key == "" {
		return 0, fmt.Errorf("%s: empty key", verb)
	}
	if err := m.enter(ctx); err != nil {
		return 0, fmt.Errorf("%s %s: %w", verb, key, err)
	}
	defer m.mu.Unlock()
	current, exists := m.data[key]
	if err := allow(current, exists); err != nil {
		return 0, fmt.Errorf("%s %s: %w", verb, key, err)
	}
	if o.lease != 0 {
		lease, ok := m.leases[o.lease]
		if !ok {
			return 0, fmt.Errorf("%s %s: lease %s: %w", verb, key, o.lease, ErrLeaseNotFound)
		}
		lease.keys[key] = struct{}{}
	}
	if exists && current.Lease != 0 && current.Lease != o.lease {
		delete(m.leases[current.Lease].keys, key)
	}
	m.rev++
	kv := KV{Key: key, Value: bytes.Clone(value), ModRevision: m.rev, Lease: o.lease}
	m.data[key] = kv
	m.notifyLocked(Event{Type: Put, KV: kv, Revision: m.rev})
	return m.rev, nil
}

// Delete implements [Store].
func (m *Memory) Delete(ctx context.Context, key string) error {
	if err := m.enter(ctx); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	defer m.mu.Unlock()
	if _, ok := m.data[key]; ok {
		m.deleteLocked([]string{key})
	}
	return nil
}

// DeletePrefix removes all keys under prefix and returns their number. Tests use it to
// lose state.
func (m *Memory) DeletePrefix(ctx context.Context, prefix string) (int, error) {
	if err := m.enter(ctx); err != nil {
		return 0, fmt.Errorf("delete prefix %s: %w", prefix, err)
	}
	defer m.mu.Unlock()
	var keys []string
	for _, kv := range m.listLocked(prefix) {
		keys = append(keys, kv.Key)
	}
	m.deleteLocked(keys)
	return len(keys), nil
}

// deleteLocked removes the given keys that exist, in one revision.
func (m *Memory) deleteLocked(keys []string) {
	if len(keys) == 0 {
		return
	}
	m.rev++
	for _, key := range keys {
		kv := m.data[key]
		delete(m.data, key)
		if lease, ok := m.leases[kv.Lease]; ok {
			delete(lease.keys, key)
		}
		m.notifyLocked(Event{Type: Delete, KV: kv, Revision: m.rev})
	}
}

// Ping implements [Store].
func (m *Memory) Ping(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	if err := m.enter(ctx); err != nil {
		return 0, fmt.Errorf("ping: %w", err)
	}
	m.mu.Unlock()
	return time.Since(start), nil
}

// Watch implements [Store].
func (m *Memory) Watch(ctx context.Context, prefix string) (*Watcher, error) {
	if err := m.enter(ctx); err != nil {
		return nil, fmt.Errorf("watch %s: %w", prefix, err)
	}
	defer m.mu.Unlock()
	// Writers push changes, so the source fetches nothing. It only unregisters.
	w, err := newWatcher(ctx, m.life, m.listLocked(prefix), m.rev, nil, func(ctx context.Context, w *Watcher) {
		<-ctx.Done()
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, w)
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", prefix, err)
	}
	m.watchers[w] = prefix
	return w, nil
}

func (m *Memory) notifyLocked(ev Event) {
	for w, prefix := range m.watchers {
		if strings.HasPrefix(ev.KV.Key, prefix) {
			w.push(ev)
		}
	}
}

// SetOutage makes the store unreachable, or reachable again, as a stopped etcd
// would be: calls fail with [ErrUnavailable], watchers go stale, leases neither
// renew nor expire. When it ends, leases get a fresh TTL and watchers a Resync.
func (m *Memory) SetOutage(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if on == !m.outage.since.IsZero() {
		return
	}
	if on {
		m.outage = trouble{since: time.Now(), err: errOutage, next: time.Now()}
		for w := range m.watchers {
			w.failing(errOutage, m.outage.next)
		}
		return
	}
	m.outage = trouble{}
	for _, lease := range m.leases {
		m.renewLocked(lease)
	}
	for w, prefix := range m.watchers {
		w.reset(m.listLocked(prefix), m.rev)
	}
}

// KeepLease implements [Store].
func (m *Memory) KeepLease(ctx context.Context, ttl time.Duration, log *slog.Logger) (*LeaseKeeper, error) {
	return keepLease(ctx, m.life, m, ttl, log)
}

// Leases implements [Store].
func (m *Memory) Leases(ctx context.Context) ([]cluster.InstanceID, error) {
	if err := m.enter(ctx); err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	defer m.mu.Unlock()
	ids := make([]cluster.InstanceID, 0, len(m.leases))
	for id := range m.leases {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, nil
}

// Close implements [Store].
func (m *Memory) Close() error {
	m.life.close()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, lease := range m.leases {
		lease.stop()
	}
	return nil
}
