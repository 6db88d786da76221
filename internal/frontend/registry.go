package frontend

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/store"
)

// servedModel is a model as its workers agree on it. It is immutable; the registry
// replaces it.
type servedModel struct {
	name string
	// base is the model of which this one is a LoRA adapter; empty for a model of its own. The
	// card of an adapter has a digest and a hash seed of its own.
	base string
	card cluster.ModelCard
	proc *chat.Processor // nil while its files are being loaded, and for text
	// text is set for a model without files: only its servers tokenize prompts.
	text bool
	// pictures is how it reads images; nil for a model of text.
	pictures *pictures
	created  time.Time
	// workers holds the decode instances with this card.
	workers map[cluster.InstanceID]cluster.RuntimeConfig
	// seats counts them; for an adapter, the workers of its base, with which it shares admission.
	seats int
	// prefills holds the prefill workers whose KV at least one of these workers can take.
	prefills map[cluster.InstanceID]cluster.RuntimeConfig
	// served is set if some of the prefill workers are servers of other engines: only the
	// frontend can bring these together with decode workers.
	served bool
	// needsPrefill is set if none of the decode workers computes prompts itself.
	needsPrefill bool
	limits       metrics.ModelLimits
}

// registry follows the model cards of a namespace and holds the models that can be
// served. All fields but models belong to run.
type registry struct {
	log     *slog.Logger
	limits  *limits
	metrics *metrics.Frontend
	moves   int // migration limit, shown beside the limits of a model
	cards   *store.Prefix[cardAt]
	desired *store.Prefix[cluster.Topology] // topologies: models that should be served though no worker serves them yet
	topoKey string
	files   *runtime.Client

	models atomic.Pointer[map[string]*servedModel]
	// carded holds the instances whose cards are in models, or are left out of them.
	carded atomic.Pointer[map[cluster.InstanceID]bool]
	// declared holds the models of the topology. While there is no topology, it holds the
	// models last declared or served, because a cluster that comes back serves them
	// again.
	declared atomic.Pointer[map[string]bool]

	sets    map[string]*fileSet         // by key
	left    map[cluster.InstanceID]bool // workers left out and logged
	hidden  map[string]bool             // adapters left out and logged
	loaded  chan loadResult
	settled chan struct{} // closed when the models found at the start are loaded
	loaders sync.WaitGroup
}

// cardAt is a card with the instance that published it.
type cardAt struct {
	cluster.ModelCard
	id  cluster.InstanceID
	rev store.Revision
}

func newRegistry(ctx context.Context, f *Frontend) (*registry, error) {
	r := &registry{
		log: f.log, limits: &f.limits, metrics: f.metrics, moves: f.cfg.MigrationLimit, files: f.files,
		sets: map[string]*fileSet{}, left: map[cluster.InstanceID]bool{}, hidden: map[string]bool{}, loaded: make(chan loadResult), settled: make(chan struct{}),
	}
	r.models.Store(&map[string]*servedModel{})
	r.carded.Store(&map[cluster.InstanceID]bool{})
	r.declared.Store(&map[string]bool{})
	cards, err := store.WatchPrefix(ctx, f.cfg.Runtime.Store(), cluster.CardPrefix(f.cfg.Runtime.Namespace()), decodeCard, f.log, store.Linger(store.LingerFor))
	if err != nil {
		return nil, fmt.Errorf("watch model cards: %w", err)
	}
	r.topoKey = cluster.TopologyKey(f.cfg.Runtime.Namespace())
	if r.desired, err = store.WatchPrefix(ctx, f.cfg.Runtime.Store(), r.topoKey, store.DecodeJSON[cluster.Topology], f.log, store.Linger(store.LingerFor)); err != nil {
		cards.Close()
		return nil, fmt.Errorf("watch the topology: %w", err)
	}
	r.cards = cards
	return r, nil
}

// decodeCard reads a card; the instance id is the last part of its key.
func decodeCard(kv store.KV) (cardAt, error) {
	card, err := store.DecodeJSON[cluster.ModelCard](kv)
	if err != nil {
		return cardAt{}, err
	}
	id, err := cluster.ParseInstanceID(kv.Key[strings.LastIndexByte(kv.Key, '/')+1:])
	if err != nil {
		return cardAt{}, err
	}
	if card.WorkerType == cluster.RoleDecode && (card.DisplayName == "" || card.BlockSize <= 0 || card.ContextLength <= 0 && card.ModelInput != cluster.InputText) {
		return cardAt{}, fmt.Errorf("model card with name %q, block size %d, context length %d", card.DisplayName, card.BlockSize, card.ContextLength)
	}
	return cardAt{card, id, kv.ModRevision}, nil
}

// run keeps the models current until ctx ends.
func (r *registry) run(ctx context.Context) {
	defer r.loaders.Wait()
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		if next := r.refresh(ctx, time.Now()); next > 0 {
			retry.Reset(next)
		}
		r.settle()
		select {
		case <-ctx.Done():
			return
		case <-r.cards.Changed():
		case <-r.desired.Changed():
		case <-r.files.Changed(): // a worker may offer its files after its card was seen
		case res := <-r.loaded:
			r.take(res, time.Now())
		case <-retry.C:
		}
	}
}

// refresh recomputes the models from the cards. It returns the time until failed loads
// are due again, 0 for never.
func (r *registry) refresh(ctx context.Context, now time.Time) (next time.Duration) {
	byName, prefills := map[string][]cardAt{}, map[string][]cardAt{}
	here := map[cluster.InstanceID]bool{}
	for _, c := range r.cards.Snapshot() {
		here[c.id] = true
		switch c.WorkerType {
		case cluster.RoleDecode:
			byName[c.DisplayName] = append(byName[c.DisplayName], c)
		case cluster.RolePrefill:
			prefills[c.DisplayName] = append(prefills[c.DisplayName], c)
		}
	}
	maps.DeleteFunc(r.left, func(id cluster.InstanceID, _ bool) bool { return !here[id] })
	agreeing := map[string][]cardAt{}
	old, models, wanted := *r.models.Load(), map[string]*servedModel{}, map[string]bool{}
	for name, cards := range byName {
		slices.SortFunc(cards, func(a, b cardAt) int { return cmp.Or(cmp.Compare(a.rev, b.rev), cmp.Compare(a.id, b.id)) })
		m, agreed := r.agree(name, cards, old[name])
		m.prefills, m.served = suitable(prefills[name], m.card, m.workers)
		agreeing[name] = agreed
		if m.text {
			m.adoptText(r, old[name])
			models[name] = m
			continue
		}
		key := filesKey(m.card)
		wanted[key] = true
		set, wait := r.ensure(ctx, key, agreed, now)
		if wait > 0 && (next == 0 || wait < next) {
			next = wait
		}
		r.adopt(m, old[name], set)
		models[name] = m
	}
	maps.DeleteFunc(r.sets, func(key string, s *fileSet) bool { return !wanted[key] && !s.loading })
	r.addAdapters(models, old, agreeing, prefills)
	for name := range old {
		if models[name] == nil {
			r.log.Info("model is no longer served", "model", name)
			r.metrics.ForgetModel(name)
		}
	}
	r.models.Store(&models)
	r.carded.Store(&here)
	r.remember(models)
	return next
}

// maxDeclared bounds the models that are remembered without a topology.
const maxDeclared = 64

// remember updates declared, which is needed once the topology and all workers are gone.
func (r *registry) remember(models map[string]*servedModel) {
	declared := map[string]bool{}
	if t, ok := r.desired.Get(r.topoKey); ok {
		for _, name := range t.ModelNames() {
			declared[name] = true
		}
	} else {
		maps.Copy(declared, *r.declared.Load())
		for name, m := range models {
			if m.base == "" && len(declared) < maxDeclared {
				declared[name] = true
			}
		}
	}
	r.declared.Store(&declared)
}

// agree makes a model from its cards, oldest first. All workers of a model must have
// interchangeable cards: interchangeable with the model already served, or else with the
// oldest card. Workers with another card are left out until the others are gone.
func (r *registry) agree(name string, cards []cardAt, old *servedModel) (*servedModel, []cardAt) {
	first := cards[0]
	if old != nil {
		if i := slices.IndexFunc(cards, func(c cardAt) bool { return interchangeable(c.ModelCard, old.card) }); i >= 0 {
			first = cards[i]
		}
	}
	m := &servedModel{name: name, card: first.ModelCard, text: first.ModelInput == cluster.InputText, workers: map[cluster.InstanceID]cluster.RuntimeConfig{}}
	agreed := cards[:0:0]
	for _, c := range cards {
		if !interchangeable(c.ModelCard, first.ModelCard) {
			if !r.left[c.id] { // log it once
				r.left[c.id] = true
				r.log.Error("worker serves another model under the same name and is left out", "model", name,
					"instance", c.id.String(), "digest", c.Digest, "expected", first.Digest,
					"weights", c.Weights, "expected_weights", first.Weights,
					"block_size", c.BlockSize, "expected_block_size", first.BlockSize,
					"kv_dtype", c.Runtime.KVDType, "expected_kv_dtype", first.Runtime.KVDType,
					"hash_seed", c.HashSeed, "expected_hash_seed", first.HashSeed)
			}
			continue
		}
		delete(r.left, c.id)
		agreed = append(agreed, c)
		m.workers[c.id] = c.Runtime
		m.needsPrefill = c.Runtime.NeedsPrefill && (m.needsPrefill || len(m.workers) == 1)
		m.card.ContextLength = min(m.card.ContextLength, c.ContextLength)
	}
	m.seats = len(m.workers)
	rt := m.card.Runtime
	m.limits = metrics.ModelLimits{
		KVBlocks: rt.TotalKVBlocks, MaxSeqs: rt.MaxNumSeqs, MaxBatchTokens: rt.MaxBatchTokens,
		ContextLength: m.card.ContextLength, BlockSize: m.card.BlockSize, MigrationLimit: r.moves,
	}
	return m, agreed
}

// suitable returns the prefill workers whose KV at least one of the decode workers of a model with
// a card can take. served reports that some of them are servers of other engines.
func suitable(cards []cardAt, card cluster.ModelCard, workers map[cluster.InstanceID]cluster.RuntimeConfig) (out map[cluster.InstanceID]cluster.RuntimeConfig, served bool) {
	out = map[cluster.InstanceID]cluster.RuntimeConfig{}
	for _, c := range cards {
		if !continues(c.ModelCard, card) {
			continue
		}
		for _, rt := range workers {
			if exchanges(c.Runtime, rt) {
				out[c.id] = c.Runtime
				served = served || c.Runtime.Backend != ""
				break
			}
		}
	}
	return out, served
}

// continues reports whether workers with these cards can continue each other's sequences.
func continues(a, b cluster.ModelCard) bool {
	return a.Digest == b.Digest && a.BlockSize == b.BlockSize && a.HashSeed == b.HashSeed && a.ModelInput == b.ModelInput
}

// exchanges reports whether workers can exchange KV.
func exchanges(a, b cluster.RuntimeConfig) bool {
	if a.Backend != "" || b.Backend != "" {
		return a.Backend == b.Backend && a.Exchange == b.Exchange && a.Exchange != "" && a.Pair == b.Pair
	}
	return a.KVDType == b.KVDType && a.KVBlockBytes == b.KVBlockBytes
}

// interchangeable reports whether workers with these cards can serve one model together:
// those with the built-in engine exchange KV blocks, too.
func interchangeable(a, b cluster.ModelCard) bool {
	if a.Runtime.Backend != "" || b.Runtime.Backend != "" {
		return continues(a, b)
	}
	return continues(a, b) && exchanges(a.Runtime, b.Runtime)
}

// ready reports whether requests of the model can be taken.
func (m *servedModel) ready() bool { return m.proc != nil || m.text }

// adoptText completes a model that has no files.
func (m *servedModel) adoptText(r *registry, old *servedModel) {
	m.created = time.Now()
	if old != nil && old.text && old.card.Digest == m.card.Digest {
		m.created = old.created
	} else {
		r.log.Info("model is served, its servers tokenize", "model", m.name)
	}
	if old == nil || old.limits != m.limits {
		r.metrics.SetModel(m.name, m.limits)
	}
}

// adopt gives m the loaded files. While new files are loading, m keeps those of its
// predecessor. adopt logs and publishes changes.
func (r *registry) adopt(m, old *servedModel, set *fileSet) {
	same := old != nil && old.proc != nil && old.card.Digest == m.card.Digest
	switch {
	case set.proc != nil:
		m.proc, m.pictures = set.proc, set.pictures
	case same:
		m.proc, m.pictures = old.proc, old.pictures
	default:
		return
	}
	m.created = time.Now()
	if same {
		m.created = old.created
	} else {
		r.log.Info("model is served", "model", m.name, "digest", m.card.Digest, "weights", m.card.Weights, "context", m.card.ContextLength)
	}
	if !same || old.limits != m.limits {
		r.metrics.SetModel(m.name, m.limits)
	}
}

// find returns a model by name, nil if there is none. Its processor may be missing.
func (r *registry) find(name string) *servedModel { return (*r.models.Load())[name] }

// has reports whether a decode worker serves the model.
func (m *servedModel) has(id cluster.InstanceID) bool {
	_, ok := m.workers[id]
	return ok
}

// list returns the models that are ready, sorted by name.
func (r *registry) list() []*servedModel {
	var out []*servedModel
	for _, m := range *r.models.Load() {
		if m.ready() {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b *servedModel) int { return strings.Compare(a.name, b.name) })
	return out
}

// forwards reports whether there is a model of text.
func (r *registry) forwards() bool {
	for _, m := range *r.models.Load() {
		if m.text {
			return true
		}
	}
	return false
}

// known reports whether there is a model of that name, or should be, for metric labels.
func (r *registry) known(name string) bool { return r.find(name) != nil || r.expected(name) }

// expected reports whether a model should be served here although perhaps no worker
// serves it now: all of them start, are drained or lost, or the cluster is being taken
// down. It is false once a topology declares other models.
func (r *registry) expected(name string) bool {
	if t, ok := r.desired.Get(r.topoKey); ok {
		return slices.Contains(t.ModelNames(), name)
	}
	return (*r.declared.Load())[name]
}

// declares reports whether the topology has decode workers of a model.
func (r *registry) declares(name string) bool {
	t, ok := r.desired.Get(r.topoKey)
	return ok && t.Decodes(name)
}

func (r *registry) close() {
	r.cards.Close()
	r.desired.Close()
}
