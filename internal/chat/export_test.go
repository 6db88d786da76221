package chat

import "time"

// SetClock replaces the clock that templates see.
func (p *Processor) SetClock(now func() time.Time) { p.now = now }

// NewTextDetokenizer is a detokenizer over texts instead of tokens: token i is
// pieces[i].
func NewTextDetokenizer(pieces, stops []string, includeStop bool) *Detokenizer {
	return newDetokenizer(&textPieces{pieces: pieces}, NewStops(stops), includeStop)
}

type textPieces struct{ pieces []string }

func (t *textPieces) Push(ids ...uint32) string {
	out := ""
	for _, id := range ids {
		out += t.pieces[id]
	}
	return out
}

func (t *textPieces) Flush() string { return "" }

func (t *textPieces) Keep([]uint32) {}
