package worker

import (
	"context"
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// peers makes decode workers known to the NIXL agent of a prefill worker: it
// follows their metadata in the store, loads it when it is needed and forgets
// peers whose metadata is gone.
type peers struct {
	w      *Worker
	blobs  *store.Prefix[[]byte]
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex // one load at a time
	loaded map[string]bool
}

func watchPeers(ctx context.Context, w *Worker) (*peers, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	raw := func(kv store.KV) ([]byte, error) { return kv.Value, nil }
	blobs, err := store.WatchPrefix(ctx, w.cfg.Store, cluster.NIXLMetadataPrefix(w.cfg.Namespace), raw, w.log)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch NIXL metadata: %w", err)
	}
	p := &peers{w: w, blobs: blobs, cancel: cancel, done: make(chan struct{}), loaded: map[string]bool{}}
	go p.forgetLost(ctx)
	return p, nil
}

func (p *peers) close() {
	p.cancel()
	<-p.done
	p.blobs.Close()
}

// ensure makes an agent known, if it lives.
func (p *peers) ensure(ctx context.Context, agent string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.w.nixl.Known(agent, "") {
		return nil
	}
	key := cluster.NIXLMetadataKey(p.w.cfg.Namespace, agent)
	blob, ok := p.blobs.Get(key)
	if !ok { // the watch may be a moment behind
		kv, err := p.w.cfg.Store.Get(ctx, key)
		if err != nil {
			return fmt.Errorf("%w: decode worker %s is gone: %w", errUnwanted, agent, err)
		}
		blob = kv.Value
	}
	name, err := p.w.nixl.LoadRemote(blob)
	if err != nil {
		return fmt.Errorf("load NIXL metadata of %s: %w", agent, err)
	}
	if name != agent {
		return fmt.Errorf("%w: metadata of %s is that of %s", errMismatch, agent, name)
	}
	p.loaded[agent] = true
	return nil
}

// forgetLost invalidates peers whose metadata has left the store.
func (p *peers) forgetLost(ctx context.Context) {
	defer close(p.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.blobs.Changed():
		}
		p.mu.Lock()
		for agent := range p.loaded {
			if _, ok := p.blobs.Get(cluster.NIXLMetadataKey(p.w.cfg.Namespace, agent)); ok {
				continue
			}
			if err := p.w.nixl.Invalidate(agent); err != nil {
				p.w.log.Debug("invalidate peer", "peer", agent, "error", err)
			}
			delete(p.loaded, agent)
		}
		p.mu.Unlock()
	}
}
