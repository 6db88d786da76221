package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/protocol"
)

// maxStepFailures bounds the steps in a row that may fail before Run returns and the
// worker restarts.
const maxStepFailures = 3

// step admits sequences that fit, runs one batch and handles its results. progress is
// false when there was nothing to compute.
func (e *Engine) step(ctx context.Context) (progress bool, err error) {
	admitted := e.admit()
	if admitted {
		e.publishStats() // the step may take long
	}
	e.assemble()
	if len(e.batch) == 0 {
		return admitted, nil
	}
	e.maskAhead()
	e.pace.begin(e.cfg.Now())
	err = e.backend.Step(ctx, e.batch)
	e.masks.Wait()
	e.count.StepsTotal++
	if err != nil {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		return true, e.stepFailed(err)
	}
	e.failures = 0
	e.report(e.pace.end(e.cfg.Now(), e.backend, &e.work))
	for i, s := range e.parts {
		if s.gen != nil && s.gen.scores != nil && s.state == seqRunning {
			e.scorePrompt(s, e.batch[i])
		}
		switch {
		case s.state != seqRunning: // an earlier part has ended it
		case e.isDraft(i):
			e.verify(s, &e.batch[i])
		default:
			e.advance(s, len(e.batch[i].Tokens))
		}
	}
	clear(e.parts)
	clear(e.turn)
	return true, nil
}

func (e *Engine) stepFailed(err error) error {
	e.pace.pause()
	for _, s := range e.parts {
		e.cancel(s, protocol.FinishError, fmt.Errorf("engine step: %w", err))
	}
	return e.countFailure(len(e.parts), err)
}

// countFailure returns an error if too many steps in a row have failed.
func (e *Engine) countFailure(sequences int, err error) error {
	e.failures++
	e.log.Error("step failed", "sequences", sequences, "failures", e.failures, "error", err)
	if e.failures >= maxStepFailures {
		return fmt.Errorf("engine stopped after %d failed steps in a row: %w", e.failures, err)
	}
	return nil
}

// admit moves waiting sequences into the batch, or offers them for remote prefill, as
// long as blocks and sequence slots last. Tenants take turns; within a tenant the oldest
// comes first. It preempts others for at most one sequence per step, so that each step
// computes something for sequences that took another's place.
func (e *Engine) admit() (progress bool) {
	for displaced := false; ; {
		next := e.waiting.Next()
		if next == nil {
			return progress
		}
		if progress {
			e.publishStats() // where the next prompt is computed depends on the ones before
		}
		s := next.Item
		matched := s.matchable(e.info.KV.BlockSize)
		matched = matched[:e.pool.Match(matched)]
		need := e.blocksFor(len(s.tokens))
		fresh := need - len(matched)
		slots := e.slots() + 1 - e.cfg.MaxSeqs
		blocks := fresh + e.headroom() + e.pool.pinnedByMatch(matched) - e.pool.Available()
		if slots > 0 || blocks > 0 {
			if displaced || !e.displaceRunning(s, need, slots, blocks) {
				return progress
			}
			displaced = true
			matched = s.matchable(e.info.KV.BlockSize) // after a preemption the cache may hold part of the prompt
			matched = matched[:e.pool.Match(matched)]
			fresh = need - len(matched)
		}
		table, err := e.pool.Acquire(matched, fresh)
		if err != nil {
			return progress
		}
		e.waiting.Take(next)
		s.place = nil
		progress = true
		s.blocks = table
		s.computed = len(matched) * e.info.KV.BlockSize
		s.registered = len(matched)
		e.admitted(s, len(matched))
	}
}

// slots returns how many sequences hold a place in the batch or will soon.
func (e *Engine) slots() int { return len(e.running) + e.remote + e.encodes + e.apart }

// headroom returns how many blocks admission leaves free. Running sequences can then grow
// for a while without preempting the newcomer at once.
func (e *Engine) headroom() int { return min(len(e.running), e.pool.Total()/16) }

func (e *Engine) blocksFor(tokens int) int {
	return (tokens + e.info.KV.BlockSize - 1) / e.info.KV.BlockSize
}

func (e *Engine) admitted(s *sequence, cachedBlocks int) {
	first := !s.counted
	if first {
		s.counted, s.cached = true, s.computed
		s.admitted = e.cfg.Now()
		e.count.PromptTokensTotal += uint64(s.given)
		e.count.CachedTokensTotal += uint64(s.computed)
		e.waiting.Charge(s.tenant, float64(s.pending()))
	}
	if s.prefill != nil {
		e.run(s)
		if s.state == seqRunning && s.pending() == 0 {
			e.hold(s)
		}
		return
	}
	if first {
		s.gen.first = &FirstToken{Queued: s.admitted.Sub(s.arrived), Cached: s.computed}
		if s.gen.scores != nil {
			s.gen.first.Why = "prompt logprobs"
		} else if e.offer(s, cachedBlocks) {
			return
		}
		e.count.LocalPrefillTotal++
	}
	e.run(s)
}

// run has a sequence with blocks take part in steps, once it has its embeddings.
func (e *Engine) run(s *sequence) {
	if e.awaitEmbeddings(s) {
		return
	}
	s.state = seqRunning
	e.running = append(e.running, s)
	if s.prefill != nil && s.prefill.progress != nil {
		s.prefill.progress(s.computed, s.blocks)
	}
}

// assemble builds the next batch. It adds one token for each decoding sequence, with
// drafts of the tokens after it, and then chunks of prompts.
func (e *Engine) assemble() {
	e.batch, e.parts, e.rowsUsed, e.work, e.streams = e.batch[:0], e.parts[:0], 0, stepWork{}, false
	e.turn = append(e.turn[:0], e.running...) // growing may preempt
	decodes := e.turn[:0]
	for _, s := range e.turn {
		if s.state == seqRunning && s.pending() == 1 && e.grow(s) {
			decodes = append(decodes, s)
		}
	}
	for _, s := range decodes {
		if s.state == seqRunning { // not so when a later one took its blocks
			e.add(s, 1)
			e.streams = e.streams || s.gen != nil && len(s.tokens) > s.prompt
		}
	}
	e.addDrafts(decodes)
	e.addPrompts()
}

func (e *Engine) add(s *sequence, n int) {
	b := BatchSeq{Tokens: s.tokens[s.computed : s.computed+n], Start: s.computed, Blocks: s.blocks, Rows: s.rowsOf(s.computed, n)}
	if e.info.Mutual {
		b.Mutual = s.mutual(n)
	}
	if s.gen != nil && s.computed+n == len(s.tokens) {
		if b.Choice = e.choice(s); b.Choice == nil {
			b.Logits = s.gen.room(e.info.VocabSize)
		}
	}
	e.addEntry(s, b)
}

func (e *Engine) addEntry(s *sequence, b BatchSeq) {
	b.Positions = s.positions
	e.batch, e.parts = append(e.batch, b), append(e.parts, s)
	e.work.add(b.Start, len(b.Tokens))
}

// grow makes sure that the block table of s covers its next token. When no block is left,
// it preempts the newest sequence of the tenant with most blocks, which may be s itself;
// it returns false then.
func (e *Engine) grow(s *sequence) bool {
	for len(s.blocks)*e.info.KV.BlockSize <= s.computed {
		ids, err := e.pool.Acquire(nil, 1)
		if err == nil {
			s.blocks = append(s.blocks, ids...)
			continue
		}
		victim := e.newestPreemptible()
		e.preempt(victim) // s itself can be preempted, so there is always one
		if victim == s {
			return false
		}
	}
	return true
}

func (e *Engine) newestPreemptible() *sequence {
	newest, blocks := map[string]*sequence{}, map[string]int{}
	for _, s := range e.running {
		if s.gen != nil {
			newest[s.tenant] = s
			blocks[s.tenant] += len(s.blocks)
		}
	}
	var victim *sequence
	for _, s := range slices.Backward(e.running) { // of tenants with as many, the newest
		if s.gen != nil && (victim == nil || blocks[s.tenant] > blocks[victim.tenant]) {
			victim = newest[s.tenant]
		}
	}
	if victim == nil {
		panic("engine: a growing sequence is not running")
	}
	return victim
}

// preempt takes the blocks of a running sequence and puts it at the front of its tenant's
// queue. Its full blocks stay in the prefix cache while there is room, so often little
// has to be computed again.
func (e *Engine) preempt(s *sequence) {
	e.running = slices.DeleteFunc(e.running, func(o *sequence) bool { return o == s })
	s.loseExport(ErrGone)
	e.pool.Release(s.blocks)
	s.blocks, s.computed, s.registered = nil, 0, 0
	s.gen.history = history{} // it costs memory and catches up later
	s.gen.drafter.forget()
	s.state = seqWaiting
	s.place = e.waiting.PushFront(s.tenant, s, 0)
	e.count.PreemptedTotal++
	e.log.Debug("preempted", "request", s.id, "tokens", len(s.tokens))
}

// advance notes that n more tokens of s are computed.
func (e *Engine) advance(s *sequence, n int) {
	if s.computed += n; s.computed >= len(s.rows) {
		s.rows = nil
	}
	e.count.ComputedTotal += uint64(n)
	e.registerComputed(s)
	switch {
	case s.prefill != nil:
		if s.prefill.progress != nil {
			s.prefill.progress(s.computed, s.blocks)
		}
		if s.pending() == 0 {
			e.hold(s)
		}
	case s.pending() == 0:
		e.next(s)
	}
}

// registerComputed offers the blocks that have become full to the prefix cache.
func (e *Engine) registerComputed(s *sequence) {
	full := s.computed / e.info.KV.BlockSize
	if full > s.registered {
		s.chain.Extend(s.tokens[:s.computed])
		e.pool.Register(s.blocks, &s.chain, s.registered, full)
		s.registered = full
	}
}

// next samples the next token of a sequence whose known tokens are all computed.
func (e *Engine) next(s *sequence) {
	g := s.gen
	out := Output{}
	g.to = e.cfg.Now()
	if g.first != nil {
		g.from = g.to
		g.first.Prefill = g.to.Sub(s.admitted)
		out.First, g.first = g.first, nil
	}
	if g.scores != nil {
		out.PromptLogprobs, g.scores = &g.scores.out, nil
	}
	reason := protocol.FinishLength
	if g.stop.MaxTokens > 0 { // otherwise the request wants only prompt scores
		token, logprobs, err := e.draw(s)
		complete := false
		if err == nil && g.constraint != nil {
			complete, err = g.accept(token, e.info.TokenLimit)
		}
		if err != nil {
			e.cancel(s, protocol.FinishError, err)
			return
		}
		s.tokens = append(s.tokens, token)
		e.count.GeneratedTotal++
		e.waiting.Charge(s.tenant, 1)
		var emit bool
		if reason, emit = s.finishAfter(token, e.cfg.MaxModelLen); emit {
			out.Tokens, out.Logprobs = []uint32{token}, logprobs
		}
		if reason == protocol.FinishNone && complete {
			reason = protocol.FinishStop
		}
	}
	out.Finish = reason
	if reason != protocol.FinishNone {
		out.Decoded = g.to.Sub(g.from)
		e.remove(s)
		s.state = seqDone
		e.count.FinishedTotal++
	}
	e.outbox = append(e.outbox, delivery{g.out, out})
}

// hold ends a prefill-only sequence. Its blocks stay readable for a transfer.
func (e *Engine) hold(s *sequence) {
	e.pool.Hold(s.blocks)
	e.wg.Add(1)
	held := &Held{Blocks: s.blocks, Tokens: s.computed, Cached: s.cached, e: e}
	e.remove(s)
	s.state = seqDone
	e.count.FinishedTotal++
	e.count.RemotePrefillTotal++
	e.publishStats() // before the result, so that the caller of Prefill sees it counted
	s.prefill.done <- prefillResult{held: held}
}

// remove takes a running sequence out of the engine and releases its blocks.
func (e *Engine) remove(s *sequence) {
	e.running = slices.DeleteFunc(e.running, func(o *sequence) bool { return o == s })
	s.loseExport(ErrGone)
	e.pool.Release(s.blocks)
	s.blocks = nil
	e.forget(s)
}

// cancel ends a sequence in any state. The holder of a reservation or an import returns
// its blocks once all writes have ended.
func (e *Engine) cancel(s *sequence, reason protocol.FinishReason, err error) {
	if s.state != seqDone {
		switch s.state {
		case seqWaiting:
			e.waiting.Remove(s.place)
			s.place = nil
		case seqEncoding:
			e.countEncoding(s, -1)
			s.stopEmbedding(err)
		case seqRunning:
			e.running = slices.DeleteFunc(e.running, func(o *sequence) bool { return o == s })
		case seqPaused:
			e.apart--
		}
		s.end(reason, err)
	}
	s.loseExport(ErrGone)
	switch {
	case s.reserve != nil:
		s.reserve.cancel(err)
		return
	case s.incoming != nil:
		s.incoming.cancel(err)
		return
	}
	if s.blocks != nil {
		e.pool.Release(s.blocks)
		s.blocks = nil
	}
	e.forget(s)
}

func (e *Engine) forget(s *sequence) {
	if e.seqs[s.id] == s {
		delete(e.seqs, s.id)
	}
}
