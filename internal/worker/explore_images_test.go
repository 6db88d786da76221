package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker/media"
)

// contents is how many images and files of embeddings there are.
const contents = 12

// lend keeps content, as a frontend does, until giveBack is called for the last request that
// has it.
func (a *album) lend(content string, start, rows int, kind protocol.MediaKind) (part protocol.MediaPart, giveBack func()) {
	part = a.put(content, start, rows)
	part.Kind = kind
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lent[part.Source.ID]++
	return part, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.lent[part.Source.ID]--; a.lent[part.Source.ID] == 0 {
			delete(a.content, part.Source.ID)
		}
	}
}

// illustrate puts up to four images into a request and returns what its prompt means. bad
// says that one of them is none. Prompts with the same beginning get the same images there,
// or others, by chance.
func (x *exploration) illustrate(r *rand.Rand, req *protocol.PreprocessedRequest) (means []uint32, bad bool, giveBack func()) {
	var back []func()
	var parts []protocol.MediaPart
	a := x.albums[r.IntN(len(x.albums))]
	twice := r.IntN(contents)
	for at := r.IntN(20); len(parts) < 4; at += r.IntN(30) {
		n := r.IntN(contents)
		if r.IntN(3) == 0 {
			n = twice
		}
		content, kind, rows := fmt.Sprint("image ", n), protocol.MediaImage, 1+n*5
		switch {
		case r.IntN(60) == 0:
			content = "bad " + content
		case n%4 == 0:
			content, kind = fmt.Sprint("embeddings ", n), protocol.MediaEmbeddings
		}
		if at+rows+2*(rows/12) > len(req.TokenIDs) {
			break
		}
		part, f := a.lend(content, at, rows, kind)
		parts, back, bad = append(parts, part), append(back, f), bad || strings.HasPrefix(content, "bad")
		at += rows + 2*(rows/12)
	}
	means = a.illustrate(req, parts...)
	return means, bad, func() {
		for _, f := range back {
			f()
		}
	}
}

// eye is an encoder that takes its time, hears late that nobody waits any more, and in an
// encode worker fails now and then.
type eye struct {
	x        *exploration
	w        *Worker
	released atomic.Bool // its weights
}

var errDazzled = errors.New("the device is dazzled")

func (e *eye) Encode(ctx context.Context, p *protocol.MediaPart, content []byte) ([][]float32, error) {
	wait := time.NewTimer(e.x.delay())
	defer wait.Stop()
	if e.x.oneOf(2) {
		<-wait.C
	} else {
		select {
		case <-wait.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if e.released.Load() {
		e.x.blame("%s encodes with weights that were released", e.w.Name())
	}
	switch {
	case strings.HasPrefix(string(content), "bad"):
		return nil, fmt.Errorf("%w: its format is unknown", media.ErrBadContent)
	case strings.HasPrefix(string(content), "image") != (p.Kind == protocol.MediaImage):
		e.x.blame("%q is to be read as %s", content, p.Kind)
	case !e.w.Role().HoldsKV() && e.x.oneOf(20):
		return nil, errDazzled
	}
	e.x.add("encodings")
	return embeddings(p.Rows, content), nil
}

// sight gives a worker little memory for embeddings, and an encoder to all that encode and
// to some others.
func (x *exploration) sight(w *Worker) {
	w.cfg.Embeddings = media.Sizes{Cache: 3 << (10 + x.throw(3)), Arena: 4 << 10}
	load := w.cfg.Load
	w.cfg.Load = func(ctx context.Context, progress func(float64)) (*Loaded, error) {
		l, err := load(ctx, progress)
		if err != nil {
			return nil, err
		}
		l.Embedding = mock.EmbeddingSize
		if !w.Role().HoldsKV() || x.throw(2) == 0 {
			e := &eye{x: x, w: w}
			l.Encoder = e
			release := l.Release
			l.Release = func() {
				e.released.Store(true)
				release()
			}
		}
		return l, nil
	}
}
