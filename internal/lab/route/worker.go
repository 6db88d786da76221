package route

import (
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/router"
)

// sequence is one request on its way.
type sequence struct {
	*Request
	arrived    time.Duration
	flight     *router.Flight
	ids        []int32
	computed   int // prompt tokens
	registered int // blocks
	generated  int
	landed     bool   // a prefill worker computes all but the last token
	then       func() // of a prefill worker: the prompt is computed
}

// worker is a simulated engine: it admits requests first come, first served, computes
// prompts in chunks beside the sequences that decode, and keeps blocks in a real pool.
type worker struct {
	id      cluster.InstanceID
	name    string
	timing  Timing
	pool    *engine.BlockPool
	waiting []*sequence
	running []*sequence
	busy    bool
	steps   int
	chunks  []int // of the running ones, in the current step

	events []kvEvent // of the current step

	// What it has done.
	computed       int // prompt tokens
	reused, blocks int
	prefilled      int // tokens and time of the steps with prompts, for the rate
	prefilling     time.Duration
}

// kvEvent tells the router's index of blocks.
type kvEvent struct {
	stored bool
	hashes []uint64
}

// Stored, Removed and Cleared make the worker the sink of its pool.
func (w *worker) Stored(_ *uint64, _ int, blocks []cluster.KVStoredBlock) {
	hashes := make([]uint64, len(blocks))
	for i, b := range blocks {
		hashes[i] = b.BlockHash
	}
	w.events = append(w.events, kvEvent{true, hashes})
}

func (w *worker) Removed(hashes []uint64, _ string) {
	w.events = append(w.events, kvEvent{false, hashes})
}

func (w *worker) Cleared(int) {}

// begin starts a step and returns how long it takes; false if there is nothing to do.
func (w *worker) begin() (time.Duration, bool) {
	var b batch
	w.chunks = w.chunks[:0]
	budget := maxBatchTokens
	for _, s := range w.running { // those that decode go first
		if s.computed == s.Tokens {
			budget--
		}
	}
	for _, s := range w.running {
		if s.computed == s.Tokens {
			b.decode++
			b.context += s.Tokens + s.generated
			w.chunks = append(w.chunks, 0)
			continue
		}
		budget = w.chunk(&b, s, budget)
	}
	for len(w.waiting) > 0 && budget > 0 && len(w.running) < maxSequences && w.admit(w.waiting[0]) {
		s := w.waiting[0]
		w.waiting = w.waiting[1:]
		w.running = append(w.running, s)
		budget = w.chunk(&b, s, budget)
	}
	if len(w.running) == 0 {
		return 0, false
	}
	w.steps++
	d := w.timing.step(b)
	w.computed += b.prompt
	if b.prompt > 0 {
		w.prefilled += b.prompt
		w.prefilling += d
	}
	return d, true
}

// chunk plans a part of a prompt.
func (w *worker) chunk(b *batch, s *sequence, budget int) int {
	n := max(0, min(budget, s.Tokens-s.computed))
	b.prompt += n
	b.pairs += float64(n) * (float64(s.computed) + float64(n)/2)
	w.chunks = append(w.chunks, n)
	return budget - n
}

// admit takes the blocks of a request, with room for its output.
func (w *worker) admit(s *sequence) bool {
	matched := w.pool.Match(s.Hashes)
	blocks := len(s.Hashes) + (s.Output+BlockSize-1)/BlockSize
	ids, err := w.pool.Acquire(s.Hashes[:matched], blocks-matched)
	if err != nil {
		return false
	}
	s.ids, s.registered = ids, matched
	s.computed = max(0, min(matched*BlockSize, s.Tokens-1)) // the last token is always computed
	if s.landed {
		s.computed = s.Tokens - 1
	}
	w.reused += matched
	w.blocks += len(s.Hashes)
	return true
}

// end finishes a step at a time and calls first and last for requests whose first token,
// or last one, has come.
func (w *worker) end(first, last func(*sequence)) {
	keep := w.running[:0]
	for i, s := range w.running {
		if n := w.chunks[i]; n > 0 {
			s.computed += n
			full := s.computed / BlockSize
			if s.computed == s.Tokens {
				full = len(s.Hashes)
			}
			if full > s.registered {
				w.pool.Register(s.ids, &blockhash.Chain{Local: s.Hashes, Seq: s.Hashes}, s.registered, full)
				s.registered = full
			}
		}
		if s.computed == s.Tokens {
			if s.generated++; s.generated == 1 {
				first(s)
			}
			if s.generated >= s.Output {
				w.pool.Release(s.ids)
				last(s)
				continue
			}
		}
		keep = append(keep, s)
	}
	clear(w.running[len(keep):])
	w.running = keep
}
