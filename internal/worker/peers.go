package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/nixl"
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
	tested map[string]bool  // for run only
	broken map[string]error // peers whose path garbles data
}

func watchPeers(ctx context.Context, w *Worker) (*peers, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	raw := func(kv store.KV) ([]byte, error) { return kv.Value, nil }
	blobs, err := store.WatchPrefix(ctx, w.cfg.Store, cluster.NIXLMetadataPrefix(w.cfg.Namespace), raw, w.log)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch NIXL metadata: %w", err)
	}
	p := &peers{w: w, blobs: blobs, cancel: cancel, done: make(chan struct{}), loaded: map[string]bool{}, tested: map[string]bool{}, broken: map[string]error{}}
	go p.run(ctx)
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
	if err := p.broken[agent]; err != nil {
		return err
	}
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

// run keeps the peers current until ctx ends: those whose metadata appears are
// loaded and their path is proven before the first prompt needs it, those whose
// metadata is gone are forgotten.
func (p *peers) run(ctx context.Context) {
	defer close(p.done)
	for {
		p.forgetLost()
		p.meetNew(ctx)
		select {
		case <-ctx.Done():
			return
		case <-p.blobs.Changed():
		}
	}
}

// selfTestTimeout bounds the proof of one path.
const selfTestTimeout = 5 * time.Second

// meetNew loads peers that are new and writes and reads a checked pattern over the
// path that was chosen. A transport that fails is given up for the next one; a peer
// that no transport leads to without garbling data is never used, one that does not
// answer now is tried when it is needed.
func (p *peers) meetNew(ctx context.Context) {
	prefix := cluster.NIXLMetadataPrefix(p.w.cfg.Namespace)
	for key := range p.blobs.Snapshot() {
		agent := strings.TrimPrefix(key, prefix)
		if p.tested[agent] || ctx.Err() != nil {
			continue
		}
		if err := p.ensure(ctx, agent); err != nil {
			p.w.log.Warn("decode worker not reachable yet", "peer", agent, "error", err)
			continue
		}
		test, cancel := context.WithTimeout(ctx, selfTestTimeout)
		_, err := p.w.nixl.ProvePath(test, agent)
		cancel()
		p.tested[agent] = true
		if errors.Is(err, nixl.ErrMismatch) {
			p.w.log.Error("the path to a decode worker garbles data and is not used", "peer", agent, "error", err)
			p.mu.Lock()
			p.broken[agent] = fmt.Errorf("%w: %w", errMismatch, err)
			p.mu.Unlock()
		} else if err != nil && ctx.Err() == nil {
			p.w.log.Warn("path to a decode worker not tested", "peer", agent, "error", err)
		}
	}
}

// forgetLost invalidates peers whose metadata has left the store.
func (p *peers) forgetLost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for agent := range p.loaded {
		if _, ok := p.blobs.Get(cluster.NIXLMetadataKey(p.w.cfg.Namespace, agent)); ok {
			continue
		}
		if err := p.w.nixl.Invalidate(agent); err != nil {
			p.w.log.Debug("invalidate peer", "peer", agent, "error", err)
		}
		delete(p.loaded, agent)
		delete(p.tested, agent)
		delete(p.broken, agent)
	}
}
