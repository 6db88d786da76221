package frontend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/store"
)

// servedModel is a model that clients can use: what its workers agree on.
type servedModel struct {
	name    string
	card    cluster.ModelCard
	proc    *chat.Processor
	created time.Time
	workers map[cluster.InstanceID]bool // decode instances with this card
}

// registry follows the model cards of a namespace and holds the models that can
// be served.
type registry struct {
	f     *Frontend
	cards *store.Prefix[cardAt]

	mu     sync.Mutex
	models map[string]*servedModel // replaced as a whole value per change
	ready  chan struct{}           // closed and replaced when models change
	bad    map[string]time.Time    // digests whose files could not be loaded, and when to try again
}

// cardAt is a card with the instance that published it.
type cardAt struct {
	cluster.ModelCard
	id   cluster.InstanceID
	rev  store.Revision
	role cluster.Role
}

func newRegistry(ctx context.Context, f *Frontend) (*registry, error) {
	r := &registry{f: f, models: map[string]*servedModel{}, ready: make(chan struct{}), bad: map[string]time.Time{}}
	cards, err := store.WatchPrefix(context.WithoutCancel(ctx), f.cfg.DRT.Store(), cluster.CardPrefix(f.cfg.DRT.Namespace()), decodeCard, f.log)
	if err != nil {
		return nil, fmt.Errorf("watch model cards: %w", err)
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
	at := 0
	for i := range kv.Key {
		if kv.Key[i] == '/' {
			at = i + 1
		}
	}
	id, err := cluster.ParseInstanceID(kv.Key[at:])
	return cardAt{card, id, kv.ModRevision, card.WorkerType}, err
}

// run keeps the models current until ctx ends.
func (r *registry) run(ctx context.Context) {
	retry := time.NewTicker(2 * time.Second)
	defer retry.Stop()
	for {
		r.refresh(ctx)
		select {
		case <-ctx.Done():
			return
		case <-r.cards.Changed():
		case <-retry.C:
		}
	}
}

// refresh recomputes the models from the cards. Workers of one model must agree
// on its digest: the card published first counts, workers with another one are
// left out until the first are gone.
func (r *registry) refresh(ctx context.Context) {
	byName := map[string][]cardAt{}
	for _, c := range r.cards.Snapshot() {
		if c.role == cluster.RoleDecode {
			byName[c.DisplayName] = append(byName[c.DisplayName], c)
		}
	}
	next := map[string]*servedModel{}
	for name, cards := range byName {
		slices.SortFunc(cards, func(a, b cardAt) int { return int(a.rev - b.rev) })
		m := r.model(ctx, name, cards)
		if m != nil {
			next[name] = m
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.models {
		if next[name] == nil {
			r.f.log.Info("model is served no more", "model", name)
			r.f.metrics.ForgetModel(name)
		}
	}
	r.models = next
	close(r.ready)
	r.ready = make(chan struct{})
}

// model builds one model from its cards, oldest first; nil if its files cannot be
// loaded now.
func (r *registry) model(ctx context.Context, name string, cards []cardAt) *servedModel {
	first := cards[0]
	r.mu.Lock()
	old := r.models[name]
	retryAt := r.bad[first.Digest]
	r.mu.Unlock()
	m := &servedModel{name: name, card: first.ModelCard, created: time.Now(), workers: map[cluster.InstanceID]bool{}}
	for _, c := range cards {
		if c.Digest != first.Digest || c.BlockSize != first.BlockSize || c.HashSeed != first.HashSeed {
			r.f.log.Error("worker serves another model under the same name and is left out", "model", name,
				"instance", c.id.String(), "digest", c.Digest, "expected", first.Digest,
				"block_size", c.BlockSize, "expected_block_size", first.BlockSize)
			continue
		}
		m.workers[c.id] = true
		m.card.ContextLength = min(m.card.ContextLength, c.ContextLength)
	}
	if old != nil && old.card.Digest == first.Digest {
		m.proc, m.created = old.proc, old.created
		return m
	}
	if time.Now().Before(retryAt) {
		return nil
	}
	proc, err := r.loadProcessor(ctx, first)
	if err != nil {
		if ctx.Err() == nil {
			r.f.log.Error("model cannot be served", "model", name, "error", err)
			r.mu.Lock()
			r.bad[first.Digest] = time.Now().Add(10 * time.Second)
			r.mu.Unlock()
		}
		return nil
	}
	m.proc = proc
	rt := first.Runtime
	r.f.metrics.SetModel(name, metrics.ModelLimits{
		KVBlocks: rt.TotalKVBlocks, MaxSeqs: rt.MaxNumSeqs, MaxBatchTokens: rt.MaxBatchTokens,
		ContextLength: m.card.ContextLength, BlockSize: m.card.BlockSize, MigrationLimit: r.f.cfg.MigrationLimit,
	})
	r.f.log.Info("model is served", "model", name, "digest", m.card.Digest, "context", m.card.ContextLength)
	return m
}

// fetchTimeout bounds the loading of a model's tokenizer files from a worker.
const fetchTimeout = 30 * time.Second

// loadProcessor fetches the small files of a model from one of its workers and
// checks them against the card.
func (r *registry) loadProcessor(ctx context.Context, card cardAt) (*chat.Processor, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	var req protocol.ModelFilesRequest
	want := map[string]cluster.CardFile{}
	for _, f := range card.Files {
		req.Names = append(req.Names, f.Name)
		want[f.Name] = f
	}
	inst, ok := r.f.filesInstance(card.id)
	if !ok {
		return nil, fmt.Errorf("no worker offers the files of model %s yet", card.DisplayName)
	}
	stream, err := r.f.files.Call(ctx, inst, "model-files", nil, req)
	if err != nil {
		return nil, fmt.Errorf("fetch files of model %s: %w", card.DisplayName, err)
	}
	defer stream.Close()
	files := chat.Files{}
	for range req.Names {
		var file protocol.ModelFile
		if err := stream.Recv(ctx, &file); err != nil {
			return nil, fmt.Errorf("fetch files of model %s: %w", card.DisplayName, err)
		}
		sum := sha256.Sum256(file.Content)
		if got := hex.EncodeToString(sum[:]); got != want[file.Name].SHA256 {
			return nil, fmt.Errorf("file %s of model %s has digest %s, its card says %s", file.Name, card.DisplayName, got, want[file.Name].SHA256)
		}
		files[file.Name] = file.Content
	}
	return chat.Load(files)
}

// filesInstance finds the endpoint that serves the files of a worker: the one
// under the same lease.
func (f *Frontend) filesInstance(id cluster.InstanceID) (cluster.Instance, bool) {
	for _, inst := range f.files.Instances() {
		if inst.InstanceID == id {
			return inst, true
		}
	}
	return cluster.Instance{}, false
}

// get returns a served model.
func (r *registry) get(name string) *servedModel {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.models[name]
}

// list returns the served models, sorted by name.
func (r *registry) list() []*servedModel {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*servedModel, 0, len(r.models))
	for _, m := range r.models {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b *servedModel) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return out
}

// known reports whether a model is served, for metric labels.
func (r *registry) known(name string) bool { return r.get(name) != nil }

func (r *registry) close() { r.cards.Close() }
