package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/ondemand"
	"github.com/dynctl/dynctl/internal/store"
)

// Peers makes other workers known to the NIXL agent of this one: it follows their
// metadata in the store, loads it when it is needed and forgets peers whose metadata
// is gone.
type Peers struct {
	p       *Plane
	blobs   *store.Share[[]byte, *store.Prefix[[]byte]]
	current *ondemand.Task // keeps the peers as the metadata is

	wants func(cluster.Role) bool // the workers of which some are met as they appear; nil: none
	order maphash.Seed            // of agents in nearest

	testing sync.Mutex // held while a path is tested on request

	tiring sync.Mutex
	tired  map[string]bool // agents the connection to which is to be closed

	mu    sync.Mutex     // one load at a time; guards wants as well
	users map[string]int // of the connection to an agent
	ended bool           // Close was called
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

// metadata holds the NIXL metadata of each namespace, for all workers of this process.
var metadata = store.NewShares(
	func(kv store.KV) ([]byte, error) { return kv.Value, nil },
	func(found, _ *store.Prefix[[]byte]) *store.Prefix[[]byte] { return found },
	store.Linger(store.LingerFor))

// Follow follows the metadata of the plane's namespace. The caller must call Close.
func (p *Plane) Follow(ctx context.Context) (*Peers, error) {
	blobs, err := metadata.Join(ctx, p.cfg.Store, cluster.NIXLMetadataPrefix(p.cfg.Namespace), p.cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("watch NIXL metadata: %w", err)
	}
	ps := &Peers{
		p: p, blobs: blobs, order: maphash.MakeSeed(),
		tired: map[string]bool{}, users: map[string]int{}, loaded: map[string]bool{}, proven: map[string]bool{}, tried: map[string]bool{}, broken: map[string]error{}, skipped: map[string]bool{},
		proving: map[string]chan struct{}{},
	}
	ps.current = ondemand.New(context.WithoutCancel(ctx), ps.follow)
	blobs.OnChange(ps.current.Wake)
	return ps, nil
}

// metEarly is the number of workers to which a worker proves the paths before a prompt needs
// them. In a large cluster the paths between all would be most of what starting takes.
const metEarly = 8

// MeetSome has the paths to workers of roles that wants accepts proven as soon as the
// workers appear: to all of few, and to some of many, each worker to others. The other
// paths are proven when they are first used. It may be called once.
func (p *Peers) MeetSome(wants func(cluster.Role) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wants = wants
	p.current.Wake()
}

// Close ends the following. Peers that were loaded stay known to the agent.
func (p *Peers) Close() {
	p.current.Close()
	p.blobs.Leave()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for agent := range p.loaded {
		p.busy(agent)
	}
}

// ForgetAll invalidates all peers that were made known here.
func (p *Peers) ForgetAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for agent := range p.loaded {
		p.drop(agent)
	}
}

// Ensure makes an agent known, if it lives. The connection to it is kept until leave is called.
func (p *Peers) Ensure(ctx context.Context, agent string) (leave func(), err error) {
	leave = p.use(agent)
	if err := p.load(ctx, agent, nil); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// load makes an agent known by its metadata, nil for that in the store.
func (p *Peers) load(ctx context.Context, agent string, blob []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.broken[agent]; err != nil {
		return err
	}
	if p.p.agent.Known(agent, "") {
		return nil
	}
	key := cluster.NIXLMetadataKey(p.p.cfg.Namespace, agent)
	published, ok := p.blobs.View().Get(key)
	switch {
	case blob != nil:
	case ok:
		blob = published
	default: // the watch may be a moment behind
		kv, err := p.p.cfg.Store.Get(ctx, key)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrGone, agent, err)
		}
		blob = kv.Value
	}
	name, err := p.p.agent.LoadRemote(blob)
	if err != nil {
		return fmt.Errorf("load NIXL metadata of %s: %w", agent, err)
	}
	if name != agent {
		return fmt.Errorf("%w: metadata of %s is that of %s", ErrMismatch, agent, name)
	}
	p.loaded[agent] = ok
	return nil
}

// follow makes the peers those of the metadata: those whose metadata has appeared are
// loaded and their path is proven before the first prompt needs it, those whose
// metadata is gone are forgotten. It also closes idle connections.
func (p *Peers) follow(ctx context.Context) {
	p.restTired()
	p.forgetLost()
	p.mu.Lock()
	wants := p.wants
	p.mu.Unlock()
	if wants != nil {
		p.meetNew(ctx, wants)
	}
}

// selfTestTimeout bounds the proof of one path.
const selfTestTimeout = 5 * time.Second

// meetNew makes peers known that are new, and proves the paths to them. A peer that
// does not answer now is tried when it is needed.
func (p *Peers) meetNew(ctx context.Context, wants func(cluster.Role) bool) {
	met := 0
	for _, agent := range p.nearest() {
		if met == metEarly || ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		tried, skipped := p.tried[agent], p.skipped[agent]
		p.mu.Unlock()
		if tried {
			met++
		}
		if tried || skipped {
			continue
		}
		if !wants(p.role(ctx, agent)) {
			p.mu.Lock()
			p.skipped[agent] = true
			p.mu.Unlock()
			continue
		}
		met++
		leave, err := p.Meet(ctx, agent, nil)
		switch {
		case err == nil:
			leave()
		case ctx.Err() == nil && !errors.Is(err, ErrGone):
			p.p.cfg.Log.Warn("path to a worker not proven", "peer", agent, "error", err)
		}
	}
}

// nearest lists the agents in an order that each worker has for itself.
func (p *Peers) nearest() []string {
	prefix := cluster.NIXLMetadataPrefix(p.p.cfg.Namespace)
	var agents []string
	for key := range p.blobs.View().Snapshot() {
		agents = append(agents, strings.TrimPrefix(key, prefix))
	}
	slices.SortFunc(agents, func(a, b string) int { return cmp.Compare(maphash.String(p.order, a), maphash.String(p.order, b)) })
	return agents
}

// role is the role of the worker that an agent belongs to, empty if it is not known.
func (p *Peers) role(ctx context.Context, agent string) cluster.Role {
	worker, _, _ := strings.Cut(agent, ".")
	st, _, err := store.GetJSON[cluster.WorkerStatus](ctx, p.p.cfg.Store, cluster.StatusKey(p.p.cfg.Namespace, worker))
	if err != nil {
		return ""
	}
	return st.Role
}

// Meet makes an agent known, by its metadata or, with nil, that in the store, and writes
// and reads a checked pattern over the path that was chosen, until that has succeeded
// once. A transport that fails is given up for the next one; a peer that no transport
// leads to without garbling data is never used. One caller tests a path, the others
// wait for that. The connection is kept until leave is called.
func (p *Peers) Meet(ctx context.Context, agent string, blob []byte) (leave func(), err error) {
	leave = p.use(agent)
	if err := p.meet(ctx, agent, blob); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

func (p *Peers) meet(ctx context.Context, agent string, blob []byte) error {
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
func (p *Peers) prove(ctx context.Context, agent string) error {
	test, cancel := context.WithTimeout(ctx, selfTestTimeout)
	defer cancel()
	_, err := p.p.agent.ProvePath(test, agent)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.proving[agent])
	delete(p.proving, agent)
	p.tried[agent] = true
	switch {
	case errors.Is(err, nixl.ErrMismatch):
		p.p.cfg.Log.Error("the path to a worker corrupts data and is not used", "peer", agent, "error", err)
		p.broken[agent] = fmt.Errorf("%w: %w", ErrMismatch, err)
		return p.broken[agent]
	case err != nil:
		return fmt.Errorf("test the path to %s: %w", agent, err)
	}
	p.proven[agent] = true
	return nil
}

// drop invalidates a peer, until it is met again. The caller holds p.mu.
func (p *Peers) drop(agent string) {
	if err := p.p.agent.Invalidate(agent); err != nil {
		p.p.cfg.Log.Debug("invalidate peer", "peer", agent, "error", err)
	}
	p.busy(agent)
	delete(p.loaded, agent)
	delete(p.proven, agent)
	delete(p.tried, agent)
	delete(p.broken, agent)
}

// forgetLost invalidates peers whose metadata has left the store.
func (p *Peers) forgetLost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for agent, shown := range p.loaded {
		if _, ok := p.blobs.View().Get(cluster.NIXLMetadataKey(p.p.cfg.Namespace, agent)); ok || !shown {
			p.loaded[agent] = ok
			continue
		}
		p.drop(agent)
	}
	maps.DeleteFunc(p.skipped, func(agent string, _ bool) bool {
		_, ok := p.blobs.View().Get(cluster.NIXLMetadataKey(p.p.cfg.Namespace, agent))
		return !ok
	})
}
