package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/store"
)

// peers makes other workers known to the NIXL agent of this one: it follows their
// metadata in the store, loads it when it is needed and forgets peers whose metadata
// is gone.
type peers struct {
	w      *Worker
	blobs  *store.Prefix[[]byte]
	eager  bool
	cancel context.CancelFunc
	done   chan struct{}

	mu sync.Mutex // one load at a time
	// loaded are the agents made known here, and whether the watch has shown them yet: one
	// that was found in the store may be ahead of it.
	loaded map[string]bool
	proven map[string]bool
	tried  map[string]bool  // the path was tested, whatever came of it
	broken map[string]error // peers whose path garbles data
	// skipped are agents that this one has nothing to exchange with.
	skipped map[string]bool
	// proving are paths that are tested now; the channel is closed when that is over.
	proving map[string]chan struct{}
}

// watchPeers follows the metadata of a namespace. Eager, it proves the paths to
// decode workers before the first prompt needs them.
func watchPeers(ctx context.Context, w *Worker, eager bool) (*peers, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	raw := func(kv store.KV) ([]byte, error) { return kv.Value, nil }
	blobs, err := store.WatchPrefix(ctx, w.cfg.Store, cluster.NIXLMetadataPrefix(w.cfg.Namespace), raw, w.log)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch NIXL metadata: %w", err)
	}
	p := &peers{
		w: w, blobs: blobs, eager: eager, cancel: cancel, done: make(chan struct{}),
		loaded: map[string]bool{}, proven: map[string]bool{}, tried: map[string]bool{}, broken: map[string]error{}, skipped: map[string]bool{},
		proving: map[string]chan struct{}{},
	}
	go p.run(ctx)
	return p, nil
}

func (p *peers) close() {
	p.cancel()
	<-p.done
	p.blobs.Close()
}

// forgetAll invalidates all peers that were made known here.
func (p *peers) forgetAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for agent := range p.loaded {
		if err := p.w.nixl.Invalidate(agent); err != nil {
			p.w.log.Debug("invalidate peer", "peer", agent, "error", err)
		}
	}
	clear(p.loaded)
}

// ensure makes an agent known, if it lives.
func (p *peers) ensure(ctx context.Context, agent string) error { return p.load(ctx, agent, nil) }

// load makes an agent known by its metadata, nil for that in the store.
func (p *peers) load(ctx context.Context, agent string, blob []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.broken[agent]; err != nil {
		return err
	}
	if p.w.nixl.Known(agent, "") {
		return nil
	}
	key := cluster.NIXLMetadataKey(p.w.cfg.Namespace, agent)
	published, ok := p.blobs.Get(key)
	switch {
	case blob != nil:
	case ok:
		blob = published
	default: // the watch may be a moment behind
		kv, err := p.w.cfg.Store.Get(ctx, key)
		if err != nil {
			return fmt.Errorf("%w: worker %s is gone: %w", errUnwanted, agent, err)
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
	p.loaded[agent] = ok
	return nil
}

// run keeps the peers current until ctx ends: those whose metadata appears are
// loaded and their path is proven before the first prompt needs it, those whose
// metadata is gone are forgotten.
func (p *peers) run(ctx context.Context) {
	defer close(p.done)
	for {
		p.forgetLost()
		if p.eager {
			p.meetNew(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.blobs.Changed():
		}
	}
}

// selfTestTimeout bounds the proof of one path.
const selfTestTimeout = 5 * time.Second

// meetNew makes peers known that are new, and proves the paths to them. A peer that
// does not answer now is tried when it is needed. Prefill workers have nothing to say
// to each other.
func (p *peers) meetNew(ctx context.Context) {
	prefix := cluster.NIXLMetadataPrefix(p.w.cfg.Namespace)
	for key := range p.blobs.Snapshot() {
		agent := strings.TrimPrefix(key, prefix)
		p.mu.Lock()
		done := p.tried[agent] || p.skipped[agent]
		p.mu.Unlock()
		if done || ctx.Err() != nil {
			continue
		}
		if p.role(ctx, agent) == cluster.RolePrefill {
			p.mu.Lock()
			p.skipped[agent] = true
			p.mu.Unlock()
			continue
		}
		if err := p.meet(ctx, agent, nil); err != nil && ctx.Err() == nil && !errors.Is(err, errUnwanted) {
			p.w.log.Warn("path to a decode worker not proven", "peer", agent, "error", err)
		}
	}
}

// role is the role of the worker that an agent belongs to, empty if it is not known.
func (p *peers) role(ctx context.Context, agent string) cluster.Role {
	worker, _, _ := strings.Cut(agent, ".")
	st, _, err := store.GetJSON[cluster.WorkerStatus](ctx, p.w.cfg.Store, cluster.StatusKey(p.w.cfg.Namespace, worker))
	if err != nil {
		return ""
	}
	return st.Role
}

// meet makes an agent known, by its metadata or, with nil, that in the store, and writes
// and reads a checked pattern over the path that was chosen, until that has succeeded
// once. A transport that fails is given up for the next one; a peer that no transport
// leads to without garbling data is never used. One caller tests a path, the others
// wait for that.
func (p *peers) meet(ctx context.Context, agent string, blob []byte) error {
	for {
		if err := p.load(ctx, agent, blob); err != nil {
			return err
		}
		p.mu.Lock()
		proven, others := p.proven[agent], p.proving[agent]
		if !proven && others == nil {
			p.proving[agent] = make(chan struct{})
		}
		p.mu.Unlock()
		switch {
		case proven:
			return nil
		case others == nil:
			return p.prove(ctx, agent)
		}
		select {
		case <-others:
		case <-ctx.Done():
			return fmt.Errorf("wait for the test of the path to %s: %w", agent, context.Cause(ctx))
		}
	}
}

// prove tests the path to an agent that is loaded, for one caller at a time.
func (p *peers) prove(ctx context.Context, agent string) error {
	test, cancel := context.WithTimeout(ctx, selfTestTimeout)
	defer cancel()
	_, err := p.w.nixl.ProvePath(test, agent)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.proving[agent])
	delete(p.proving, agent)
	p.tried[agent] = true
	switch {
	case errors.Is(err, nixl.ErrMismatch):
		p.w.log.Error("the path to a worker garbles data and is not used", "peer", agent, "error", err)
		p.broken[agent] = fmt.Errorf("%w: %w", errMismatch, err)
		return p.broken[agent]
	case err != nil:
		return fmt.Errorf("test the path to %s: %w", agent, err)
	}
	p.proven[agent] = true
	return nil
}

// forget invalidates a peer, until it is met again.
func (p *peers) forget(agent string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(agent)
}

// drop is forget, guarded by p.mu.
func (p *peers) drop(agent string) {
	if err := p.w.nixl.Invalidate(agent); err != nil {
		p.w.log.Debug("invalidate peer", "peer", agent, "error", err)
	}
	delete(p.loaded, agent)
	delete(p.proven, agent)
	delete(p.tried, agent)
	delete(p.broken, agent)
}

// forgetLost invalidates peers whose metadata has left the store.
func (p *peers) forgetLost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for agent, shown := range p.loaded {
		if _, ok := p.blobs.Get(cluster.NIXLMetadataKey(p.w.cfg.Namespace, agent)); ok || !shown {
			p.loaded[agent] = ok
			continue
		}
		p.drop(agent)
	}
	maps.DeleteFunc(p.skipped, func(agent string, _ bool) bool {
		_, ok := p.blobs.Get(cluster.NIXLMetadataKey(p.w.cfg.Namespace, agent))
		return !ok
	})
}

// transfer prepares to move blocks between the pool of this worker and that of another
// one, selected by their ids from both. The other pool is looked up for each transfer:
// its metadata may have been loaded again.
func (w *Worker) transfer(op nixl.Op, mine []int32, agent string, theirs []int32, opts nixl.TransferOpts) (*nixl.Transfer, error) {
	other, err := remotePool(w.nixl, agent, w.info.KV)
	if err != nil {
		return nil, err
	}
	here, there, err := w.pool.pair(mine, other, theirs)
	if err != nil {
		return nil, err
	}
	remote, err := w.nixl.PrepareRemote(agent, there.runs...)
	if err != nil {
		return nil, err
	}
	local, err := w.nixl.PrepareLocal(here.runs...)
	if err != nil {
		return nil, err
	}
	return w.nixl.MakeTransfer(op, local, here.index, remote, there.index, opts)
}
