package media

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/worker/kv"
)

// Host gives a finder access to the cluster.
type Host interface {
	// Client follows an endpoint, until the term ends. Without a namespace it is one of the
	// worker's.
	Client(ctx context.Context, of cluster.Endpoint) (*runtime.Client, error)
}

// Meter counts what a finder does.
type Meter interface {
	// Encoded counts an image whose embeddings this worker computed for itself.
	Encoded(cached bool, took time.Duration)
	// EmbeddingsRead counts the embeddings of an image that were read from an encode worker.
	EmbeddingsRead(transport string, bytes int64, took time.Duration)
}

// Finder gets embeddings for the prompts of one term.
type Finder struct {
	p         *Plane
	meter     Meter
	peers     *kv.Peers
	encoders  *Encoders // nil: nobody else is asked
	frontends *runtime.Client
}

// NewFinder makes the finder of a term. alone says that it asks no encode workers, because
// this is one.
func (p *Plane) NewFinder(ctx context.Context, host Host, peers *kv.Peers, meter Meter, alone bool) (*Finder, error) {
	f := &Finder{p: p, meter: meter, peers: peers}
	var err error
	if f.frontends, err = host.Client(ctx, cluster.Endpoint{Component: cluster.ComponentFrontend, Name: cluster.EndpointMedia}); err != nil || alone {
		return f, err
	}
	f.encoders, err = Follow(ctx, host, p.cfg.Encode)
	return f, err
}

// Images are those of one prompt.
type Images struct {
	f      *Finder
	of     Owner
	model  string // digest
	tokens []uint32
	parts  []protocol.MediaPart

	mu    sync.Mutex
	about protocol.Encoded
	told  time.Time // when an encode worker answered last; zero: none has
}

// Of returns the images of a prompt. Without any it returns nil, which has no embeddings.
// Those of a nil finder cannot be had, and the engine refuses the request.
func (f *Finder) Of(of Owner, model string, tokens []uint32, parts []protocol.MediaPart) *Images {
	if len(parts) == 0 {
		return nil
	}
	return &Images{f: f, of: of, model: model, tokens: tokens, parts: parts}
}

// Media is what the engine needs to know of the images.
func (m *Images) Media() engine.Media {
	if m == nil {
		return engine.Media{}
	}
	media := engine.Media{Parts: protocol.Spans(m.parts), Grids: grids(m.parts)}
	if m.f != nil {
		media.Embed = m.embed
	}
	return media
}

// grids returns those of all parts; nil if none has any.
func grids(parts []protocol.MediaPart) []engine.Grid {
	if !slices.ContainsFunc(parts, func(p protocol.MediaPart) bool { return p.Grid != protocol.Grid{} }) {
		return nil
	}
	out := make([]engine.Grid, len(parts))
	for i := range parts {
		out[i] = engine.Grid(parts[i].Grid)
	}
	return out
}

// About says how the embeddings came here so far.
func (m *Images) About() protocol.Encoded {
	if m == nil {
		return protocol.Encoded{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	about := m.about
	about.By, about.Chosen = slices.Clone(about.By), slices.Clone(about.Chosen)
	return about
}

// embed gets the embeddings of some parts, all at once.
func (m *Images) embed(ctx context.Context, spans []blockhash.Media) ([][][]float32, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	begin := time.Now()
	rows := make([][][]float32, len(spans))
	var wg sync.WaitGroup
	for i, span := range spans {
		at := slices.IndexFunc(m.parts, func(p protocol.MediaPart) bool { return p.Start == span.Start })
		wg.Go(func() {
			got, err := m.f.find(ctx, m, &m.parts[at])
			if err != nil {
				cancel(fmt.Errorf("image %d: %w", at+1, err)) // the first one counts
			}
			if rows[i], err = m.spread(&m.parts[at], got); err != nil {
				cancel(fmt.Errorf("image %d: %w", at+1, err))
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.about.NS += int64(time.Since(begin))
	if !m.told.IsZero() {
		m.about.ExposedNS += int64(time.Since(m.told))
		m.told = time.Time{}
	}
	return rows, nil
}

// spread puts the embeddings of a part where its placeholders are.
func (m *Images) spread(p *protocol.MediaPart, rows [][]float32) ([][]float32, error) {
	if len(rows) == p.End-p.Start {
		return rows, nil // without a copy: no other tokens
	}
	all := make([][]float32, p.End-p.Start)
	n := 0
	for i, token := range m.tokens[p.Start:p.End] {
		if token == p.Token {
			if n < len(rows) {
				all[i] = rows[n]
			}
			n++
		}
	}
	return all, checkRows(rows, n)
}

// note changes what is known of the embeddings.
func (m *Images) note(change func(*protocol.Encoded)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.about)
}

// find gets the embeddings of one part: those that are here, those of an encode worker, or
// those that this worker computes.
func (f *Finder) find(ctx context.Context, m *Images, part *protocol.MediaPart) ([][]float32, error) {
	rows, hit, err := f.p.cache.get(ctx, part.Key, part.Rows, func(ctx context.Context) ([][]float32, error) {
		return f.load(ctx, m, part)
	})
	if err == nil {
		m.note(func(e *protocol.Encoded) {
			e.Parts++
			if hit {
				e.Cached++
			}
		})
	}
	return rows, err
}

func (f *Finder) load(ctx context.Context, m *Images, part *protocol.MediaPart) ([][]float32, error) {
	why := whyNoEncoder
	order, chosen := f.encoders.Order(part.Key[:])
	for _, inst := range order {
		rows, err := f.read(ctx, inst, m, part, chosen)
		switch {
		case err == nil:
			return rows, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case final(err):
			return nil, err
		}
		why = err.Error()
		chosen = inst.Worker + " failed: " + why
		f.p.cfg.Log.Warn("no embeddings from an encode worker", "request", m.of.Request, "worker", inst.Worker, "error", err)
	}
	begin := time.Now()
	rows, err := f.p.encode(ctx, m.of, part, func(ctx context.Context) ([]byte, error) { return f.Content(ctx, part) })
	if errors.Is(err, ErrNoEncoder) {
		err = fmt.Errorf("%s; %w", why, err)
	}
	if err != nil {
		return nil, Remote(err)
	}
	took := time.Since(begin)
	f.meter.Encoded(false, took)
	f.p.Tell(m.of.Request, f.p.cfg.Worker, part, took, false)
	m.note(func(e *protocol.Encoded) {
		e.By, e.Chosen, e.Why = append(e.By, f.p.cfg.Worker), append(e.Chosen, why), why
	})
	return rows, nil
}

// whyNoEncoder is why a worker encodes itself that knows nobody else who does.
const whyNoEncoder = "no encode worker"

// At says where embeddings would come from now. It changes nothing.
func (f *Finder) At(key blockhash.Key) cluster.EmbeddingsAt {
	if f.p.cache.has(key) {
		return cluster.EmbeddingsAt{Cached: true}
	}
	order, chosen := f.encoders.Order(key[:])
	switch {
	case len(order) > 0:
		return cluster.EmbeddingsAt{Encoder: order[0].Worker, Why: chosen}
	case f.p.cfg.Encoder != nil:
		return cluster.EmbeddingsAt{Encoder: f.p.cfg.Worker, Why: whyNoEncoder}
	}
	return cluster.EmbeddingsAt{Why: whyNoEncoder}
}

// final reports whether everybody would fail with the same content: it is bad.
func final(err error) bool {
	var remote *requestplane.RemoteError
	return errors.As(Remote(err), &remote) && remote.Kind == requestplane.KindInvalidArgument
}
