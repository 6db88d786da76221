package engine

import (
	"math"
	"slices"
)

// room is the space and time that a step has left for chunks of prompts.
type room struct {
	tokens  int
	seconds float64
}

func (r *room) take(n int, seconds float64) {
	r.tokens -= n
	r.seconds -= seconds
}

// addPrompts adds chunks of prompts to the batch. Tenants with prompts share the room
// equally and take turns to choose first. What one tenant leaves unused goes to the
// others.
func (e *Engine) addPrompts() {
	oldest := e.oldestPrompt()
	if oldest == nil {
		return
	}
	r := e.chunkRoom(oldest)
	e.hungry = e.hungry[:0]
	for _, s := range e.running {
		if s.pending() > 1 && !slices.Contains(e.hungry, s.tenant) {
			e.hungry = append(e.hungry, s.tenant)
		}
	}
	n := len(e.hungry)
	if n == 1 {
		e.addTenant(oldest.tenant, &r, r)
		return
	}
	first := int(e.count.StepsTotal % uint64(n))
	for i := range n {
		share := room{r.tokens / (n - i), r.seconds / float64(n-i)}
		share.tokens = max(share.tokens, min(r.tokens, MinChunkTokens)) // smaller ones are not worth an entry
		if !math.IsInf(r.seconds, 1) {
			share.seconds = max(share.seconds, min(r.seconds, e.pace.model.chunk(oldest.computed, MinChunkTokens)))
		}
		e.addTenant(e.hungry[(first+i)%n], &r, share)
	}
	for _, s := range e.running {
		if s.pending() > 1 && !e.chunked(s) {
			r.take(e.addChunk(s, r))
		}
	}
}

// addTenant adds chunks of one tenant's prompts, the oldest prompt first, within the
// tenant's share, and deducts them from r.
//
// If the oldest prompt needs more than one step, short prompts may overtake it. Up to
// half of the share goes first to prompts that have at most a quarter of its pending
// tokens, shortest first. So a short prompt does not wait for a long one, and the long
// one takes at most twice as long.
func (e *Engine) addTenant(tenant string, r *room, share room) {
	oldest := e.oldestOf(tenant)
	if oldest == nil {
		return
	}
	add := func(s *sequence, limit room) (int, float64) {
		n, seconds := e.addChunk(s, limit)
		share.take(n, seconds)
		r.take(n, seconds)
		return n, seconds
	}
	if e.fit(oldest, share) < oldest.pending() {
		half := room{share.tokens / 2, share.seconds / 2}
		short := oldest.pending() / 4
		for s := e.shortPrompt(tenant, short); s != nil; s = e.shortPrompt(tenant, short) {
			n, seconds := add(s, half)
			if n == 0 && !e.chunked(s) {
				break
			}
			half.take(n, seconds)
		}
	}
	for _, s := range e.running {
		if s.tenant == tenant && s.pending() > 1 && !e.chunked(s) {
			add(s, share)
		}
	}
}

func (e *Engine) oldestPrompt() *sequence {
	for _, s := range e.running {
		if s.pending() > 1 {
			return s
		}
	}
	return nil
}

func (e *Engine) oldestOf(tenant string) *sequence {
	for _, s := range e.running {
		if s.tenant == tenant && s.pending() > 1 {
			return s
		}
	}
	return nil
}

// shortPrompt returns the prompt of a tenant with the fewest pending tokens, among those
// without a chunk in this step. It returns nil if all have more than limit.
func (e *Engine) shortPrompt(tenant string, limit int) *sequence {
	var least *sequence
	for _, s := range e.running {
		if n := s.pending(); n > 1 && n <= limit && s.tenant == tenant && !e.chunked(s) {
			least, limit = s, n-1
		}
	}
	return least
}

// chunkRoom returns the room for chunks beside the decoding sequences, which are in the
// batch already. If no entry of the batch produces output, only the token budget limits
// it. Otherwise the ITL target limits the time, but MinChunkTokens of the oldest prompt
// always fit.
func (e *Engine) chunkRoom(oldest *sequence) room {
	r := room{tokens: max(e.cfg.MaxBatchTokens-len(e.batch), 1), seconds: math.Inf(1)}
	if e.streams {
		least := e.pace.model.chunk(oldest.computed, MinChunkTokens)
		r.seconds = least
		if e.pace.model.steps > 0 {
			r.seconds = max(least, e.pace.chunkTime(&e.work))
		}
	}
	return r
}

// fit returns how many pending tokens of a prompt the room can take. It returns 0 if that
// is too few to be worth an entry.
func (e *Engine) fit(s *sequence, r room) int {
	n := min(s.pending(), r.tokens)
	if math.IsInf(r.seconds, 1) {
		return e.uncut(s, n)
	}
	fits := e.pace.model.fit(s.computed, n, r.seconds)
	if fits < min(n, MinChunkTokens/2) {
		fits = 0
	}
	return e.uncut(s, fits)
}

// chunked reports whether the current step already has a chunk of the prompt, or one that
// it waits for.
func (e *Engine) chunked(s *sequence) bool { return s.chunkStep == e.count.StepsTotal+1 }

// addChunk adds as much of a prompt as there is room for. It returns the number of tokens
// and the predicted seconds.
func (e *Engine) addChunk(s *sequence, r room) (int, float64) {
	if e.catchUp(s) {
		s.chunkStep = e.count.StepsTotal + 1
		return 0, 0
	}
	n := e.fit(s, r)
	if n <= 0 {
		return 0, 0
	}
	start := s.computed
	if s.gen != nil && s.gen.scores.missing(s.prompt) {
		n = e.addScored(s, n)
	} else {
		e.add(s, n)
	}
	s.chunkStep = e.count.StepsTotal + 1
	return n, e.pace.model.chunk(start, n)
}
