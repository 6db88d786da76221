package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/protocol"
)

// Media are the parts of a prompt whose positions hold embeddings in place of those of
// tokens, in order and apart from each other. The tokens there are placeholders within the
// vocabulary, which count for nothing but penalties; positions after the first of a part may
// be those of tokens all the same. The zero value is a prompt of text.
type Media struct {
	Parts []blockhash.Media
	// Grids say how the rows of each part lie, for a backend with [BackendInfo.Grids]; nil for
	// others. A key stands for one grid.
	Grids []Grid
	// Embed returns the embeddings of some of the parts: for each part a row for each of its
	// positions, of [BackendInfo.Embedding] values, or nil for that of the token there. The engine asks for parts that are not
	// computed yet, once the sequence has its blocks, on a goroutine of its own. It may ask
	// again after a preemption. ctx ends when the request does.
	Embed func(ctx context.Context, parts []blockhash.Media) ([][][]float32, error)
}

// ErrEmbeddings ends a sequence whose embeddings cannot be had, or do not fit the model.
var ErrEmbeddings = errors.New("no embeddings")

// check returns an error unless the parts lie in a prompt of n tokens, in order, and a step
// of batchTokens can compute each that must not be cut.
func (m *Media) check(n, batchTokens int, info *BackendInfo) error {
	if len(m.Parts) == 0 {
		return nil
	}
	switch {
	case info.Embedding == 0:
		return fmt.Errorf("%w: this model takes nothing but text", ErrBadRequest)
	case m.Embed == nil:
		return fmt.Errorf("%w: nothing gives the embeddings", ErrBadRequest)
	}
	at := 0
	for i, p := range m.Parts {
		if p.Start < at || p.End <= p.Start || p.End > n {
			return fmt.Errorf("%w: part %d stands at positions %d to %d, after %d of a prompt of %d", ErrBadRequest, i, p.Start, p.End, at, n)
		}
		if info.Mutual && p.End-p.Start > batchTokens {
			return fmt.Errorf("%w: part %d has %d positions, which attend to each other: max_num_batched_tokens is %d", ErrBadRequest, i, p.End-p.Start, batchTokens)
		}
		at = p.End
	}
	return m.checkGrids(info)
}

// checkGrids returns an error unless the parts stand in grids if and only if the backend rotates
// their rows by those.
func (m *Media) checkGrids(info *BackendInfo) error {
	switch {
	case len(m.Grids) > 0 && !info.Grids:
		return fmt.Errorf("%w: this model does not place the rows of images in grids", ErrBadRequest)
	case info.Grids && len(m.Grids) != len(m.Parts):
		return fmt.Errorf("%w: %d grids for %d images, whose rows this model places in grids", ErrBadRequest, len(m.Grids), len(m.Parts))
	}
	for i, g := range m.Grids {
		if n := m.Parts[i].End - m.Parts[i].Start; !g.Holds(n) {
			return fmt.Errorf("%w: part %d has a grid of %d × %d × %d for %d rows", ErrBadRequest, i, g.T, g.H, g.W, n)
		}
	}
	return nil
}

// mutual returns the parts that the n tokens after the computed ones belong to.
func (s *sequence) mutual(n int) (spans []Span) {
	for _, p := range s.chain.Media {
		if p.End > s.computed && p.Start < s.computed+n {
			spans = append(spans, Span{p.Start, p.End})
		}
	}
	return spans
}

// uncut returns how many of the next n tokens a chunk takes so that it cuts no part whose
// positions attend to each other. If that would be none, the oldest prompt of a tenant takes
// the part beyond its room, which then is no room for others: a step exceeds its budget by
// one part at most. Younger prompts wait.
func (e *Engine) uncut(s *sequence, n int) int {
	if !e.info.Mutual || n <= 0 {
		return n
	}
	end := s.computed + n
	i := slices.IndexFunc(s.chain.Media, func(p blockhash.Media) bool { return p.Start < end && end < p.End })
	switch {
	case i < 0:
		return n
	case s.chain.Media[i].Start > s.computed:
		return s.chain.Media[i].Start - s.computed
	case s == e.oldestOf(s.tenant):
		return s.chain.Media[i].End - s.computed
	}
	return 0
}

// missing returns the parts that are to be computed and whose embeddings are not here.
func (s *sequence) missing() (parts []blockhash.Media) {
	for _, p := range s.chain.Media {
		if p.End > s.computed && (s.rows == nil || s.rows[p.Start] == nil) {
			parts = append(parts, p)
		}
	}
	return parts
}

// awaitEmbeddings has a sequence that holds its blocks wait for embeddings if it needs any.
// It joins the batch when they are here.
func (e *Engine) awaitEmbeddings(s *sequence) bool {
	parts := s.missing()
	if len(parts) == 0 {
		return false
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	s.state, s.stopEmbedding = seqEncoding, cancel
	e.countEncoding(s, 1)
	if e.stepped() {
		rows, err := s.embed(ctx, parts)
		e.embedded(s, parts, rows, err)
		return true
	}
	e.wg.Add(1)
	go func() {
		defer e.wg.Done()
		defer cancel(nil)
		rows, err := s.embed(ctx, parts)
		e.post(func() { e.embedded(s, parts, rows, err) })
	}()
	return true
}

// countEncoding counts a sequence that enters or leaves seqEncoding.
func (e *Engine) countEncoding(s *sequence, d int) {
	e.encodes += d
	e.countAway(s, d)
}

// embedded takes the embeddings of some parts, unless the sequence has ended.
func (e *Engine) embedded(s *sequence, parts []blockhash.Media, rows [][][]float32, err error) {
	if s.state != seqEncoding {
		return
	}
	if err == nil {
		err = s.putRows(parts, rows, e.info.Embedding)
	}
	if err != nil {
		e.cancel(s, protocol.FinishError, fmt.Errorf("%w: %w", ErrEmbeddings, err))
		return
	}
	e.countEncoding(s, -1)
	s.stopEmbedding = nil
	e.run(s)
}

// putRows puts embeddings in their positions.
func (s *sequence) putRows(parts []blockhash.Media, rows [][][]float32, width int) error {
	if len(rows) != len(parts) {
		return fmt.Errorf("%d came for %d parts", len(rows), len(parts))
	}
	if s.rows == nil {
		s.rows = make([][]float32, s.chain.Media[len(s.chain.Media)-1].End)
	}
	for i, p := range parts {
		if len(rows[i]) != p.End-p.Start {
			return fmt.Errorf("part %d has %d rows, %d stand in the prompt", i, len(rows[i]), p.End-p.Start)
		}
		for j, row := range rows[i] {
			if len(row) != width && (row != nil || j == 0) {
				return fmt.Errorf("part %d has rows of %d values, the model's are %d", i, len(row), width)
			}
			s.rows[p.Start+j] = row
		}
	}
	return nil
}

// rowsOf returns the rows of the n tokens from start on, nil if all are text.
func (s *sequence) rowsOf(start, n int) [][]float32 {
	if start >= len(s.rows) {
		return nil
	}
	rows := s.rows[start:min(start+n, len(s.rows))]
	for _, row := range rows {
		if row != nil {
			return append(rows[:len(rows):len(rows)], make([][]float32, n-len(rows))...)
		}
	}
	return nil
}
