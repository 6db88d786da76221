package directory

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/nixl"
)

// follower keeps one peer as the store has it.
type follower struct {
	d      *Directory
	peer   string
	cancel context.CancelFunc
	users  int // calls of Fetch under way; guarded by Directory.mu

	mu      sync.Mutex
	values  map[string][]byte // by key
	loaded  map[string][]byte // what was loaded of the keys that were fetched
	changed chan struct{}     // closed and replaced when values change
	ended   error             // nothing changes any more
}

// follow returns the follower of a peer; unfollow must be called.
func (d *Directory) follow(peer string) (*follower, error) {
	prefix, err := d.prefix(peer)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("follow agent %q: directory is closed: %w", peer, nixl.ErrNotAllowed)
	}
	f := d.followers[peer]
	if f == nil {
		ctx, cancel := context.WithCancel(d.ctx)
		f = &follower{d: d, peer: peer, cancel: cancel, values: map[string][]byte{}, loaded: map[string][]byte{}, changed: make(chan struct{})}
		d.followers[peer] = f
		d.wg.Go(func() { f.run(ctx, prefix) })
	}
	f.users++
	return f, nil
}

// unfollow ends what follow began.
func (d *Directory) unfollow(f *follower) {
	d.mu.Lock()
	f.users--
	d.mu.Unlock()
	d.dropIdle(f)
}

// dropIdle stops a follower of which nothing is loaded and that nobody waits for.
func (d *Directory) dropIdle(f *follower) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.users == 0 && f.idle() {
		d.dropLocked(f)
	}
}

func (d *Directory) dropLocked(f *follower) {
	f.cancel()
	if d.followers[f.peer] == f {
		delete(d.followers, f.peer)
	}
}

func (f *follower) idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.loaded) == 0
}

func (f *follower) run(ctx context.Context, prefix string) {
	err := f.d.store.Follow(ctx, prefix, f.take)
	if err == nil {
		err = context.Cause(ctx)
	}
	f.mu.Lock()
	f.ended = err
	close(f.changed)
	f.mu.Unlock()
	if ctx.Err() == nil {
		f.d.opts.Log.Warn("nixl metadata is not followed any more", "peer", f.peer, "error", err)
	}
	f.d.mu.Lock()
	f.d.dropLocked(f)
	f.d.mu.Unlock()
}

// take takes in a change.
func (f *follower) take(key string, value []byte) {
	f.apply(key, value)
	f.d.dropIdle(f)
}

func (f *follower) apply(key string, value []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(value) == 0 { // an empty one is a placeholder
		delete(f.values, key)
	} else {
		f.values[key] = value
	}
	close(f.changed)
	f.changed = make(chan struct{})
	old, fetched := f.loaded[key]
	switch {
	case !fetched:
	case len(value) == 0:
		delete(f.loaded, key)
		if len(f.loaded) == 0 {
			f.forget(old)
		}
	case !bytes.Equal(old, value):
		if err := f.load(key, value); err != nil {
			f.d.opts.Log.Warn("nixl metadata not loaded", "peer", f.peer, "key", key, "error", err)
		}
	}
}

// forget invalidates the peer, if it is the one whose metadata are gone.
func (f *follower) forget(blob []byte) {
	id, err := nixl.MetadataIdentity(blob)
	if err != nil || !f.d.agent.Known(f.peer, id.Incarnation) {
		return
	}
	if err := f.d.agent.Invalidate(f.peer); err == nil {
		f.d.opts.Log.Info("nixl peer has left the store", "peer", f.peer, "incarnation", id.Incarnation)
	}
}

func (f *follower) load(key string, blob []byte) error {
	id, err := nixl.MetadataIdentity(blob)
	if err != nil {
		return err
	}
	if id.Name != f.peer {
		return fmt.Errorf("it is that of agent %q: %w", id.Name, nixl.ErrMismatch)
	}
	if _, err := f.d.agent.LoadRemote(blob); err != nil {
		return err
	}
	f.loaded[key] = blob
	return nil
}

// fetch waits for a key and loads it.
func (f *follower) fetch(ctx context.Context, key string) error {
	for {
		f.mu.Lock()
		if blob := f.values[key]; blob != nil {
			defer f.mu.Unlock()
			return f.load(key, blob)
		}
		changed, ended := f.changed, f.ended
		f.mu.Unlock()
		if ended != nil {
			return fmt.Errorf("the store does not answer: %w: %w", nixl.ErrBackend, ended)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
