package directory

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
)

// Label is that of the whole blob.
const Label = "metadata"

// DefaultNamespace is that of NIXL.
const DefaultNamespace = "/nixl/agents"

// Store keeps the blobs. [store.Leased] is one.
//
// [store.Leased]: https://pkg.go.dev/github.com/dynctl/dynctl/internal/store#Leased
type Store interface {
	// Put writes a key that ends with the owner's lease.
	Put(ctx context.Context, key string, value []byte) error
	// DeletePrefix deletes all keys with that prefix.
	DeletePrefix(ctx context.Context, prefix string) error
	// Follow calls f, one call at a time, with every key below prefix, then with each
	// change, and with a nil value for a key that is gone, until ctx ends. f owns the
	// value.
	Follow(ctx context.Context, prefix string, f func(key string, value []byte)) error
}

// Options configure a Directory. The zero value is fine.
type Options struct {
	Namespace string        // of all keys, without a slash at the end; default DefaultNamespace
	Wait      time.Duration // how long Fetch waits for a key; default 5 s
	Log       *slog.Logger  // may be nil
}

// Directory is an agent's view of the store.
type Directory struct {
	agent *nixl.Agent
	store Store
	opts  Options

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	followers map[string]*follower // by peer
}

// New returns the directory of an agent.
func New(agent *nixl.Agent, st Store, o Options) *Directory {
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	o.Namespace = strings.TrimRight(o.Namespace, "/")
	if o.Wait <= 0 {
		o.Wait = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	d := &Directory{agent: agent, store: st, opts: o, followers: map[string]*follower{}}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// Publish stores the whole metadata of the agent. It is to be called again after
// regions were registered or deregistered.
func (d *Directory) Publish(ctx context.Context) error {
	return d.put(ctx, Label, d.agent.Metadata())
}

// PublishPartial stores a part of the metadata under a label of its own.
func (d *Directory) PublishPartial(ctx context.Context, label string, spec nixl.PartialSpec) error {
	blob, err := d.agent.PartialMetadata(spec)
	if err != nil {
		return fmt.Errorf("publish %q: %w", label, err)
	}
	return d.put(ctx, label, blob)
}

func (d *Directory) put(ctx context.Context, label string, blob []byte) error {
	key, err := d.key(d.agent.Name(), label)
	if err != nil {
		return err
	}
	if err := d.store.Put(ctx, key, blob); err != nil {
		return fmt.Errorf("publish %q of agent %q: %w", label, d.agent.Name(), err)
	}
	return nil
}

// Withdraw deletes all that the agent has published; peers that have fetched it forget
// it.
func (d *Directory) Withdraw(ctx context.Context) error {
	prefix, err := d.prefix(d.agent.Name())
	if err != nil {
		return err
	}
	if err := d.store.DeletePrefix(ctx, prefix); err != nil {
		return fmt.Errorf("withdraw metadata of agent %q: %w", d.agent.Name(), err)
	}
	return nil
}

// Fetch loads what a peer has published under a label; an empty label is that of the
// whole blob. It waits for the key up to Options.Wait. From then on the agent follows:
// a new value is loaded, too, and the peer is invalidated when the last label that was
// fetched is gone.
//
// Errors: those of [nixl.Agent.LoadRemote]; nixl.ErrNotFound when nothing is published
// in time, nixl.ErrMismatch when the blob is that of another agent,
// nixl.ErrInvalidParam for names with a slash.
func (d *Directory) Fetch(ctx context.Context, peer, label string) error {
	if label == "" {
		label = Label
	}
	key, err := d.key(peer, label)
	if err != nil {
		return err
	}
	f, err := d.follow(peer)
	if err != nil {
		return err
	}
	defer d.unfollow(f)
	ctx, cancel := context.WithTimeoutCause(ctx, d.opts.Wait, fmt.Errorf("not published within %s: %w", d.opts.Wait, nixl.ErrNotFound))
	defer cancel()
	if err := f.fetch(ctx, key); err != nil {
		return fmt.Errorf("fetch %q of agent %q: %w", label, peer, err)
	}
	return nil
}

// Close stops following. Peers stay loaded, and what was published stays until it is
// withdrawn or its lease ends.
func (d *Directory) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.wg.Wait()
}

func (d *Directory) prefix(agent string) (string, error) {
	if agent == "" || strings.ContainsRune(agent, '/') {
		return "", fmt.Errorf("agent name %q: a key needs one without a slash: %w", agent, nixl.ErrInvalidParam)
	}
	return d.opts.Namespace + "/" + agent + "/", nil
}

func (d *Directory) key(agent, label string) (string, error) {
	prefix, err := d.prefix(agent)
	if err == nil && (label == "" || strings.ContainsRune(label, '/')) {
		err = fmt.Errorf("label %q: a key needs one without a slash: %w", label, nixl.ErrInvalidParam)
	}
	return prefix + label, err
}
