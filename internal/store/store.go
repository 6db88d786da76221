package store

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

var (
	// ErrNotFound is returned when a key, or a leader, does not exist.
	ErrNotFound = errors.New("not found")
	// ErrExists is returned by Create when the key already exists.
	ErrExists = errors.New("already exists")
	// ErrConflict is returned by CompareAndSwap when the key is at another
	// revision than expected.
	ErrConflict = errors.New("changed by someone else")
	// ErrLeaseNotFound is returned when a lease has expired, was revoked or was
	// never granted.
	ErrLeaseNotFound = errors.New("lease not found")
	// ErrUnavailable is returned when the store could not be reached or did not
	// answer in time. Whether a write took effect is then unknown.
	ErrUnavailable = errors.New("store unavailable")
	// ErrDenied is returned when the store refuses the credentials, or refuses
	// the key to them.
	ErrDenied = errors.New("access denied")
	// ErrClosed is returned by every method after Close.
	ErrClosed = errors.New("store closed")
)

// Revision counts changes of the whole store. It only ever grows while the
// store's data lives.
type Revision int64

// KV is one key with its value.
type KV struct {
	Key   string
	Value []byte // shared, read only
	// ModRevision is the revision of the last change of this key.
	ModRevision Revision
	// Lease owns the key; 0 means that the key stays until it is deleted.
	Lease cluster.InstanceID
}

// EventType is the kind of change that an [Event] reports.
type EventType int

const (
	// Put reports a key that was created or changed.
	Put EventType = iota
	// Delete reports a key that was deleted or whose lease ended.
	Delete
	// Resync replaces everything known about the prefix. It is the first event
	// of every watch and follows whenever single changes could not be
	// delivered: after an outage, a compaction, or when the reader was slow.
	Resync
)

// String returns the lower-case name of the type.
func (t EventType) String() string {
	switch t {
	case Put:
		return "put"
	case Delete:
		return "delete"
	case Resync:
		return "resync"
	}
	return "unknown"
}

// Event is one step in the history of a watched prefix.
type Event struct {
	Type EventType
	// KV is the new state of the key (Put), or its last known state (Delete,
	// where ModRevision is the revision of the value, not of the deletion).
	KV KV
	// All is the complete state of the prefix, sorted by key (Resync).
	All []KV
	// Revision is the store revision of the state after the event.
	Revision Revision
}

// Lease is a granted time to live that keys can be bound to.
type Lease struct {
	ID  cluster.InstanceID
	TTL time.Duration // as granted, which may be longer than asked for
}

// Reader reads and watches keys.
type Reader interface {
	// Get returns one key, or [ErrNotFound].
	Get(ctx context.Context, key string) (KV, error)
	// List returns all keys under prefix, sorted, and the revision at which
	// that was the state.
	List(ctx context.Context, prefix string) ([]KV, Revision, error)
	// Newest returns the highest ModRevision of the keys under prefix, 0 if there are none.
	// It costs one key on the wire, however many there are.
	Newest(ctx context.Context, prefix string) (Revision, error)
	// Watch follows a prefix until ctx ends or the Watcher is closed: first one
	// Resync with the current state, then every change in order. It fails only
	// when the first listing fails; from then on it repairs itself.
	Watch(ctx context.Context, prefix string) (*Watcher, error)
}

// Writer changes keys.
type Writer interface {
	// Create writes a key that must not exist yet, or fails with [ErrExists].
	Create(ctx context.Context, key string, value []byte, opts ...PutOption) (Revision, error)
	// Put writes a key, whether or not it exists.
	Put(ctx context.Context, key string, value []byte, opts ...PutOption) (Revision, error)
	// CompareAndSwap writes a key if its ModRevision is expect, or fails with
	// [ErrConflict]. Revision 0 stands for a key that does not exist.
	CompareAndSwap(ctx context.Context, key string, expect Revision, value []byte, opts ...PutOption) (Revision, error)
	// Delete removes a key. Deleting an absent key is not an error.
	Delete(ctx context.Context, key string) error
}

// ReadWriter reads keys and changes them.
type ReadWriter interface {
	Reader
	Writer
}

// Leaser grants leases and ends them.
type Leaser interface {
	// GrantLease grants a lease that is not kept alive. The store may round the TTL up.
	GrantLease(ctx context.Context, ttl time.Duration) (Lease, error)
	// KeepLease grants a lease and keeps it alive until the keeper is closed.
	// ctx covers only the grant.
	KeepLease(ctx context.Context, ttl time.Duration, log *slog.Logger) (*LeaseKeeper, error)
	// LeaseTTL returns how long a lease has left and what was granted, or
	// [ErrLeaseNotFound].
	LeaseTTL(ctx context.Context, id cluster.InstanceID) (left, granted time.Duration, err error)
	// RevokeLease ends a lease and deletes its keys, or returns [ErrLeaseNotFound].
	RevokeLease(ctx context.Context, id cluster.InstanceID) error
	// Leases returns the ids of all leases, ascending.
	Leases(ctx context.Context) ([]cluster.InstanceID, error)
}

// Store is shared state with revisions, leases and watches. Functions should ask only for
// the part that they need. Contexts without a deadline get a default timeout for every
// call except Watch, KeepLease's background work and what [Elect] does.
type Store interface {
	ReadWriter
	Leaser

	// WhileAnswering derives a context that also ends, with an [ErrUnavailable] as its
	// cause, when the store has been silent for a while. It is for work that may be
	// skipped because a lease or a later attempt has the same effect. All its callers
	// stop waiting for a silent store at one moment, not each after a timeout of its own.
	WhileAnswering(ctx context.Context) (context.Context, context.CancelFunc)

	// Ping asks the store for a consistent read and returns the round trip time.
	Ping(ctx context.Context) (time.Duration, error)
	// Close ends all watchers and keepers, waits for them and disconnects.
	// Leases are left to expire. Closing twice is fine.
	Close() error
}

// PutOption changes how a key is written.
type PutOption func(*putOptions)

type putOptions struct {
	lease cluster.InstanceID
}

// WithLease binds the key to a lease: it is deleted when the lease ends. The
// write fails with [ErrLeaseNotFound] if the lease is gone already. Id 0 means
// no lease.
func WithLease(id cluster.InstanceID) PutOption {
	return func(o *putOptions) { o.lease = id }
}

func applyPutOptions(opts []PutOption) putOptions {
	var o putOptions
	for _, opt := range opts {
		opt(&o)
	}
	return o
}
