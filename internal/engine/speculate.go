package engine

import "github.com/dynctl/dynctl/internal/cluster"

// drafter proposes the next tokens of a sequence, so that one step can verify several.
// Each proposed token is an entry of the batch with logits of its own. The sampler draws
// tokens from them in order, exactly as it would without drafts. It goes on only as long
// as the token drawn is the proposed one. So drafts change when a token comes, never
// which.
type drafter struct {
	opts   cluster.Speculative
	seed   uint64
	index  *ngrams  // made when it is needed
	draft  []uint32 // of the current step
	missed bool     // a proposed token differed from the drawn one
	// rate is the recent share of proposed tokens that were right, 0 to 1.
	rate float64
}

const (
	// firstRate is the initial rate. While nothing is proposed, the rate returns to it by
	// rateRecovery per token.
	firstRate, rateGain, rateRecovery = 0.5, 0.25, 0.01
	// leastChance is the least probability of a proposed token that is verified, even if
	// that seems to cost nothing. A sequence that does not repeat itself then costs an
	// entry in some ten steps.
	leastChance = 0.15
	// maxDrafts bounds the proposed tokens of one step: each needs room for logits,
	// which are as large as the vocabulary.
	maxDrafts = 64
)

// newDrafter returns nil if opts propose no tokens.
func newDrafter(opts cluster.Speculative, seed uint64) *drafter {
	if !opts.Enabled() {
		return nil
	}
	return &drafter{opts: opts, seed: seed, rate: firstRate}
}

// forget releases the memory of the index. It is rebuilt from the tokens when needed.
func (d *drafter) forget() {
	if d != nil {
		d.index = nil
	}
}

// length returns how many tokens to propose, at most k. A token is proposed if its
// expected gain exceeds its cost, both in seconds. The expected gain is worth times the
// chance that it and all tokens before it are right.
func (d *drafter) length(k int, worth, cost float64) int {
	chance := d.rate
	for n := range min(k, d.opts.Tokens) {
		if chance < leastChance || chance*worth < cost {
			return n
		}
		chance *= d.rate
	}
	return min(k, d.opts.Tokens)
}

func (d *drafter) propose(tokens []uint32, k int) {
	if d.index == nil {
		d.index = newNgrams(d.opts.LookupMin, d.opts.LookupMax, d.seed)
	}
	d.index.extend(tokens)
	d.draft, d.missed = d.index.propose(d.draft[:0], tokens, k), false
}

// verified learns whether the next token of the draft was right. Tokens after a wrong one
// teach nothing.
func (d *drafter) verified(right bool) {
	switch {
	case d.missed:
	case right:
		d.rate += rateGain * (1 - d.rate)
	default:
		d.missed = true
		d.rate -= rateGain * d.rate
	}
}

// addDrafts adds drafts to a batch that holds the next token of each sequence in decodes.
// It adds a draft only if the step gets longer by less than its tokens are worth. A token
// is worth its present cost in the batch. Large batches get fewer drafts, because their
// entries already share the reading of weights.
func (e *Engine) addDrafts(decodes []*sequence) {
	e.drafts = [2]int{len(e.batch), len(e.batch)}
	if !e.cfg.Speculative.Enabled() || len(e.batch) == 0 {
		return
	}
	worth := e.pace.model.predict(&e.work) / float64(len(e.batch))
	left := min(maxDrafts, e.cfg.MaxBatchTokens-len(e.batch))
	for _, s := range decodes {
		if s.state != seqRunning || s.gen == nil || s.gen.scores != nil {
			continue
		}
		left -= e.addDraft(s, left, worth)
	}
	e.drafts[1] = len(e.batch)
	e.count.DraftTokensTotal += uint64(e.drafts[1] - e.drafts[0])
}

// addDraft adds at most k proposed tokens of a sequence and returns how many it added.
func (e *Engine) addDraft(s *sequence, k int, worth float64) int {
	d := s.gen.drafter
	k = min(k, s.gen.stop.MaxTokens-s.output()-1, e.cfg.MaxModelLen-len(s.tokens)-1) // the step draws one token in any case
	if k <= 0 {
		return 0
	}
	if k = d.length(k, worth, e.pace.model.decode(s.computed)); k == 0 {
		d.rate += rateRecovery * (firstRate - d.rate)
		return 0
	}
	d.propose(s.tokens, k)
	d.draft = d.draft[:e.spare(s, len(d.draft))]
	for i := range d.draft {
		row := e.drafted()
		e.addEntry(s, BatchSeq{Tokens: d.draft[i : i+1], Start: len(s.tokens) + i, Blocks: s.blocks, Logits: row})
	}
	return len(d.draft)
}

// spare extends the block table of s for up to n tokens after the next one, without
// taking blocks that will soon be needed. It returns for how many tokens there is room.
func (e *Engine) spare(s *sequence, n int) int {
	bs := e.info.KV.BlockSize
	for len(s.blocks)*bs < len(s.tokens)+n && e.pool.Available() > e.headroom() {
		ids, err := e.pool.Acquire(nil, 1)
		if err != nil {
			break
		}
		s.blocks = append(s.blocks, ids...)
	}
	return min(n, len(s.blocks)*bs-len(s.tokens))
}

// drafted returns room for the logits after one more proposed token.
func (e *Engine) drafted() []float32 {
	i := len(e.batch) - e.drafts[0]
	if i == len(e.draftRows) {
		e.draftRows = append(e.draftRows, make([]float32, e.info.VocabSize))
	}
	return e.draftRows[i]
}

// isDraft reports whether an entry of the batch is a proposed token.
func (e *Engine) isDraft(i int) bool { return i >= e.drafts[0] && i < e.drafts[1] }

// verify takes the logits after a proposed token, if that token is the one that was
// drawn.
func (e *Engine) verify(s *sequence, b *BatchSeq) {
	right := b.Start == s.computed && b.Tokens[0] == s.tokens[b.Start]
	s.gen.drafter.verified(right)
	if !right {
		return
	}
	e.count.AcceptedTokensTotal++
	room := s.gen.logits
	s.gen.logits = b.Logits
	e.advance(s, 1)
	s.gen.logits = room
}
