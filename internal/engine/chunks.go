package engine

import "math"

// room is what a step still has for chunks of prompts.
type room struct {
	tokens  int
	seconds float64
}

func (r *room) take(n int, seconds float64) {
	r.tokens -= n
	r.seconds -= seconds
}

// addPrompts adds chunks of prompts to the batch, the oldest prompt first.
//
// An oldest prompt that needs more steps lets short ones pass: up to half of the
// room goes first to prompts that lack at most a quarter of what it lacks, those
// that lack least first. So a short prompt does not wait for a long one, which takes
// at most twice as long for it.
func (e *Engine) addPrompts() {
	oldest := e.oldestPrompt()
	if oldest == nil {
		return
	}
	r := e.chunkRoom(oldest)
	if e.fit(oldest, r) < oldest.pending() {
		half := room{r.tokens / 2, r.seconds / 2}
		for s := e.shortPrompt(oldest.pending() / 4); s != nil; s = e.shortPrompt(oldest.pending() / 4) {
			n, seconds := e.addChunk(s, half)
			if n == 0 {
				break
			}
			half.take(n, seconds)
			r.take(n, seconds)
		}
	}
	for _, s := range e.running {
		if s.pending() > 1 && !e.chunked(s) {
			r.take(e.addChunk(s, r))
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

// shortPrompt returns the prompt that lacks least, if that is not more than limit,
// of those without a chunk in this step.
func (e *Engine) shortPrompt(limit int) *sequence {
	var least *sequence
	for _, s := range e.running {
		if n := s.pending(); n > 1 && n <= limit && !e.chunked(s) {
			least, limit = s, n-1
		}
	}
	return least
}

// chunkRoom is what the batch, which holds what decodes, has for chunks. When it goes
// on with no output that is the token budget. Else it is the time that the ITL target
// leaves, but enough for MinChunkTokens of the oldest prompt.
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

// fit is how many of its pending tokens a prompt may add. What little time others
// have left is not worth an entry.
func (e *Engine) fit(s *sequence, r room) int {
	n := min(s.pending(), r.tokens)
	if math.IsInf(r.seconds, 1) {
		return n
	}
	fits := e.pace.model.fit(s.computed, n, r.seconds)
	if fits < min(n, MinChunkTokens/2) {
		return 0
	}
	return fits
}

// chunked reports whether the prompt has its chunk in the step at hand.
func (e *Engine) chunked(s *sequence) bool { return s.chunkStep == e.count.StepsTotal+1 }

// addChunk adds as much of a prompt as there is room for. It returns how many tokens
// that is and how many seconds they take.
func (e *Engine) addChunk(s *sequence, r room) (int, float64) {
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
