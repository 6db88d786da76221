package media

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/kv"
)

// Encoder computes the embeddings of content.
type Encoder interface {
	// Encode returns a row for each position of the part, of as many values as the model
	// embeds a token with. It may be called by several goroutines.
	Encode(ctx context.Context, part *protocol.MediaPart, content []byte) ([][]float32, error)
}

// Sizes are bytes of memory; 0 means the default.
type Sizes struct {
	Cache int64 // for embeddings that are kept
	Arena int   // for embeddings that are moved
}

// Defaults of Sizes.
const (
	DefaultCache = 256 << 20
	DefaultArena = 128 << 20
)

// Config is the configuration of a plane.
type Config struct {
	Worker string
	KV     *kv.Plane // whose agent moves embeddings, too; it is closed before the plane
	// Encoder computes embeddings here; nil: this worker cannot.
	Encoder Encoder
	// Encode names the endpoint of the encode workers; the zero value means
	// {namespace}.encode.generate.
	Encode cluster.Endpoint
	// Width is the number of values of an embedding; 0: the model takes none.
	Width int
	Sizes
	Log *slog.Logger
	// Encoded hears of each image whose embeddings this worker computed, or gave from its cache;
	// it must not block. nil for nobody.
	Encoded func(cluster.Encoding)
}

// Plane is what a worker has for embeddings.
type Plane struct {
	cfg     Config
	cache   *cache
	arena   *arena        // nil where the model takes none
	line    *line         // two places, for parts whose content is here: one is fetched while one is encoded
	turns   chan struct{} // one, of these
	fetched atomic.Int32  // parts with a place that wait for their turn
	offers  offers

	encoded, encodeNanos atomic.Uint64
	read, left           atomic.Uint64 // offers, by how they ended
}

// Open makes a plane.
func Open(cfg Config) (*Plane, error) {
	if cfg.Encode == (cluster.Endpoint{}) {
		cfg.Encode = cluster.Endpoint{Component: cluster.RoleEncode.Component(), Name: cluster.EndpointGenerate}
	}
	p := &Plane{cfg: cfg, cache: newCache(cmp.Or(cfg.Cache, DefaultCache)), line: newLine(2, maxWaiting), turns: make(chan struct{}, 1)}
	if cfg.Width == 0 {
		return p, nil
	}
	var err error
	if p.arena, err = newArena(cfg.KV.Agent(), cmp.Or(cfg.Arena, DefaultArena)); err != nil {
		return nil, fmt.Errorf("memory for embeddings: %w", err)
	}
	return p, nil
}

// Stop ends what computes embeddings or moves them here, and waits for it.
func (p *Plane) Stop() { p.cache.stop() }

// Close frees the memory of the plane. It is stopped, and the agent of its KV plane is closed.
func (p *Plane) Close() error {
	if p.arena == nil {
		return nil
	}
	return p.arena.close()
}

// Idle returns an error if embeddings are computed here, or on their way from or to this
// worker.
func (p *Plane) Idle() error {
	if n := p.cache.computing.Load(); n > 0 {
		return fmt.Errorf("the embeddings of %d images are not here yet", n)
	}
	if p.arena == nil {
		return nil
	}
	return p.arena.idle()
}

// Stats are the figures of a plane.
type Stats struct {
	Cache       CacheStats
	Encoded     uint64 // parts, here
	EncodeNanos uint64 // that took
	Waiting     int    // parts that wait to be encoded here
	Read, Left  uint64 // offers, by how they ended
}

// Stats returns the figures.
func (p *Plane) Stats() Stats {
	return Stats{p.cache.stats(), p.encoded.Load(), p.encodeNanos.Load(), p.line.len() + int(p.fetched.Load()), p.read.Load(), p.left.Load()}
}

// Figures sets those of images. alone says that the worker does nothing but encode.
func (p *Plane) Figures(st *cluster.WorkerStats, alone bool) {
	now := p.Stats()
	st.EncodedTotal, st.ImagesCachedTotal = now.Encoded, now.Cache.Hits
	st.Embeddings, st.EmbeddingsBytes = now.Cache.Entries, now.Cache.Bytes
	if p.arena != nil {
		st.EmbeddingsLimit = now.Cache.Limit
	}
	if !alone {
		return
	}
	st.Running, st.Waiting, st.MaxSeqs, st.BlockSize, st.KVTotal = len(p.turns), now.Waiting, 0, 0, 0
	st.RequestsTotal, st.FinishedTotal, st.CancelledTotal = now.Cache.Hits+now.Cache.Misses, now.Read, now.Left
	st.StepNanosTotal = now.EncodeNanos
}

// Errors of encoding.
var (
	// ErrNoEncoder means that this worker has no vision tower.
	ErrNoEncoder = errors.New("this worker cannot encode images")
	// ErrBadContent means that content is no image that can be encoded, or no file of
	// embeddings of the model.
	ErrBadContent = errors.New("not an image that can be encoded")
	// ErrBusy means that too much waits to be encoded here.
	ErrBusy = errors.New("too many images wait to be encoded")
)

// Remote translates a failure to encode for the other side of the request plane: what would
// fail everywhere, and what another worker may do. Other errors stay as they are.
func Remote(err error) error {
	var kind requestplane.Kind
	switch {
	case errors.Is(err, ErrBadContent), errors.Is(err, ErrRows), errors.Is(err, ErrTooLarge):
		kind = requestplane.KindInvalidArgument
	case errors.Is(err, ErrBusy):
		kind = requestplane.KindOverloaded
	case errors.Is(err, ErrNoEncoder):
		kind = requestplane.KindUnavailable
	default:
		return err
	}
	return &requestplane.RemoteError{Kind: kind, Message: err.Error()}
}

// maxWaiting bounds what waits for the encoder of one worker.
const maxWaiting = 256

// Embeddings returns those of a part from the cache, or computes them; took is how long that
// took, and hit says that it was not for this caller. content fetches what is encoded.
func (p *Plane) Embeddings(ctx context.Context, of Owner, part *protocol.MediaPart, content func(context.Context) ([]byte, error)) (rows [][]float32, took time.Duration, hit bool, err error) {
	begin := time.Now()
	rows, hit, err = p.cache.get(ctx, part.Key, part.Rows, func(ctx context.Context) ([][]float32, error) {
		return p.encode(ctx, of, part, content)
	})
	return rows, time.Since(begin), hit, err
}

// contentDigits is how much of the hash of a content names it in events.
const contentDigits = 12

// Tell says that the embeddings of a part of a request are there, for the worker with its prompt.
func (p *Plane) Tell(request, worker string, part *protocol.MediaPart, took time.Duration, cached bool) {
	if p.cfg.Encoded == nil {
		return
	}
	id := part.Source.ID
	p.cfg.Encoded(cluster.Encoding{
		Time: time.Now(), RequestID: request, For: worker, Content: id[:min(len(id), contentDigits)], Rows: part.Rows, TookNS: int64(took), Cached: cached,
	})
}

// encode computes the embeddings of one part after the other.
func (p *Plane) encode(ctx context.Context, of Owner, part *protocol.MediaPart, content func(context.Context) ([]byte, error)) ([][]float32, error) {
	if p.cfg.Encoder == nil {
		return nil, ErrNoEncoder
	}
	if err := p.line.enter(ctx, of); err != nil { // before the content is in memory
		return nil, err
	}
	var took time.Duration
	defer func() { p.line.leave(of, took.Seconds()) }()
	data, err := content(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.turn(ctx); err != nil {
		return nil, err
	}
	defer func() { <-p.turns }()
	begin := time.Now()
	defer func() { took = time.Since(begin) }()
	rows, err := p.cfg.Encoder.Encode(ctx, part, data)
	if err != nil {
		return nil, err
	}
	if err := p.fits(rows, part); err != nil {
		return nil, err
	}
	p.encoded.Add(1)
	p.encodeNanos.Add(uint64(time.Since(begin)))
	return rows, nil
}

// turn waits until nobody else encodes.
func (p *Plane) turn(ctx context.Context) error {
	p.fetched.Add(1)
	defer p.fetched.Add(-1)
	select {
	case p.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fits refuses embeddings of another shape than a part and the model have.
func (p *Plane) fits(rows [][]float32, part *protocol.MediaPart) error {
	if err := checkRows(rows, part.Rows); err != nil {
		return err
	}
	for _, row := range rows {
		if len(row) != p.cfg.Width {
			return fmt.Errorf("embeddings of %d values, the model's have %d", len(row), p.cfg.Width)
		}
	}
	return nil
}
