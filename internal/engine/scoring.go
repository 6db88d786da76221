package engine

import "github.com/dynctl/dynctl/internal/protocol"

// promptScores collects the log probabilities of the tokens of a prompt. Each needs the
// logits of the position before it. So, until they are known, no part of the prompt may
// come from the prefix cache or a remote prefill.
type promptScores struct {
	width int // number of most likely tokens to report for each
	known int // leading tokens of the prompt that are scored; the first needs no score
	out   protocol.Logprobs
}

// scoredRows bounds the prompt positions whose logits one step computes, because the
// logits of a position are as large as the vocabulary.
const scoredRows = 16

// missing reports whether there are prompt tokens without a score.
func (p *promptScores) missing(prompt int) bool { return p != nil && p.known < prompt }

// addScored adds up to n pending tokens of a sequence whose prompt is scored. Each is an
// entry with its own logits. It returns how many it added.
func (e *Engine) addScored(s *sequence, n int) int {
	if skip := s.gen.scores.known - 1 - s.computed; skip > 0 { // scored before a preemption
		n = min(n, skip)
		e.add(s, n)
		return n
	}
	taken := 0
	for p := s.computed; taken < n; p++ {
		b := BatchSeq{Tokens: s.tokens[p : p+1], Start: p, Blocks: s.blocks}
		switch {
		case p+1 == len(s.tokens):
			b.Logits = s.gen.room(e.info.VocabSize)
		case p+1 < s.prompt:
			if b.Logits = e.row(); b.Logits == nil {
				return taken
			}
		}
		e.addEntry(s, b)
		taken++
	}
	return taken
}

// row returns room for the logits of a prompt position in the current step, or nil when
// scoredRows are used.
func (e *Engine) row() []float32 {
	if e.rowsUsed == scoredRows {
		return nil
	}
	if e.rowsUsed == len(e.rows) {
		e.rows = append(e.rows, make([]float32, e.info.VocabSize))
	}
	e.rowsUsed++
	return e.rows[e.rowsUsed-1]
}

// scorePrompt scores the prompt token after an entry, using the entry's logits.
func (e *Engine) scorePrompt(s *sequence, b BatchSeq) {
	p := s.gen.scores
	next := b.Start + len(b.Tokens)
	if b.Logits == nil || next != p.known || next >= s.prompt {
		return
	}
	logits := b.Logits[:min(e.info.TokenLimit, len(b.Logits))]
	if err := e.sampler.score(&p.out, logits, s.tokens[next], p.width); err != nil {
		e.cancel(s, protocol.FinishError, err)
		return
	}
	p.known++
}
