package profile

import "math"

// Work holds the quantities that the duration of a step depends on, as the engine counts
// them (engine.StepReport).
type Work struct {
	Decodes       int // entries of one token: decoding sequences
	DecodeContext int // positions that those attend to, summed
	Tokens        int // in longer entries: chunks of prompts
	ChunkContext  int // positions that each of these tokens attends to, summed
}

// Add counts an entry of n tokens that begins at position start.
func (w *Work) Add(start, n int) {
	if n == 1 {
		w.Decodes++
		w.DecodeContext += start + 1
		return
	}
	w.Tokens += n
	w.ChunkContext += n*start + n*(n+1)/2
}

const numFeatures = 5

func (w Work) features() [numFeatures]float64 {
	return [numFeatures]float64{1, float64(w.Decodes), float64(w.DecodeContext), float64(w.Tokens), float64(w.ChunkContext)}
}

// Costs are the seconds of a step for one unit of each feature: the duration of a step is
// the sum of the features of its work, each times its cost.
type Costs struct {
	Step          float64 `json:"step_s"`           // reading the weights, launching
	Decode        float64 `json:"decode_s"`         // an entry of one token
	DecodeContext float64 `json:"decode_context_s"` // a position that it attends to: reading KV
	Token         float64 `json:"token_s"`          // a token of a chunk
	ChunkContext  float64 `json:"chunk_context_s"`  // a position that such a token attends to
}

// costNames are the JSON names of costs, in order.
var costNames = [numFeatures]string{"step_s", "decode_s", "decode_context_s", "token_s", "chunk_context_s"}

func (c *Costs) all() [numFeatures]*float64 {
	return [numFeatures]*float64{&c.Step, &c.Decode, &c.DecodeContext, &c.Token, &c.ChunkContext}
}

// StepSeconds returns how long a step with that work takes.
func (c Costs) StepSeconds(w Work) float64 {
	return c.Step + c.Decode*float64(w.Decodes) + c.DecodeContext*float64(w.DecodeContext) + c.Token*float64(w.Tokens) + c.ChunkContext*float64(w.ChunkContext)
}

// StepSeconds returns how long the worker takes for a step with that work. Where the profile
// has costs they say so. Where it has only tables, a step takes as long as the prompt tokens
// at the table's speed, and what an answer's token takes at that use of the KV pool and mean
// context, one after the other.
func (p *Profile) StepSeconds(w Work) float64 {
	if p.Step != (Costs{}) {
		return p.Step.StepSeconds(w)
	}
	s := 0.0
	if w.Tokens > 0 && p.Measured.Prefill != nil {
		// The table is of whole prompts. A chunk's share of one is by its tokens, at the length
		// whose mean context is that of the chunk.
		isl := 2 * float64(w.ChunkContext) / float64(w.Tokens)
		s += p.Measured.Prefill.ttft(isl) * float64(w.Tokens) / max(isl, 1)
	}
	if w.Decodes > 0 && p.Measured.Decode != nil {
		s += p.Measured.Decode.itl(float64(w.DecodeContext), float64(w.DecodeContext)/float64(w.Decodes))
	}
	return s
}

// TTFT returns the seconds from the arrival of a prompt at an idle cluster until its first
// token: from the table if there is one, else the steps that compute it in chunks of
// MaxBatchTokens, and the overheads of a request.
func (p *Profile) TTFT(isl int) float64 {
	if t := p.Measured.Prefill; t != nil {
		return t.ttft(float64(isl))
	}
	return p.Overheads.Frontend + p.prefill(isl) + p.Overheads.Delivery
}

// Prompt returns the steps that compute a prompt alone, from position start up to isl: in
// chunks of MaxBatchTokens, of which the last one may be a single token.
func (l Limits) Prompt(start, isl int) (w Work, steps int) {
	n := isl - start
	if n <= 0 {
		return w, 0
	}
	chunk := max(1, l.MaxBatchTokens)
	if chunk == 1 { // as if it were decoded
		return Work{Decodes: n, DecodeContext: n*start + n*(n+1)/2}, n
	}
	last := (n-1)%chunk + 1
	if n > last {
		w.Add(start, n-last) // chunks one after the other attend as one that is as long as all
	}
	w.Add(isl-last, last)
	return w, (n + chunk - 1) / chunk
}

// prefill returns the seconds of the steps that compute a prompt alone.
func (p *Profile) prefill(isl int) float64 {
	w, steps := p.Limits.Prompt(0, isl)
	if steps == 0 {
		return 0
	}
	return p.Step.StepSeconds(w) + float64(steps-1)*p.Step.Step
}

// PrefillThroughput returns the prompt tokens per second that a worker computes, of prompts
// of that length, one after the other. It is infinite where the costs have no time for prompts, as
// those that are found from requests of one length may: all of it is in what decoding costs then.
func (p *Profile) PrefillThroughput(isl int) float64 {
	if t := p.Measured.Prefill; t != nil {
		return t.throughput(float64(isl)) * float64(max(1, p.Devices))
	}
	s := p.prefill(isl)
	if s <= 0 {
		return math.Inf(1)
	}
	return float64(isl) / s
}

// ITL returns the seconds between two tokens of an answer while the running sequences have
// so many tokens in the KV pool together, and so many each on average.
func (p *Profile) ITL(activeKV, context float64) float64 {
	if t := p.Measured.Decode; t != nil {
		return t.itl(activeKV, context)
	}
	activeKV = max(activeKV, context) // a token comes from a sequence that is there
	n := max(1, activeKV/max(1, context))
	return p.Step.Step + p.Step.Decode*n + p.Step.DecodeContext*activeKV
}

// decodeGrid is the number of uses of the KV pool, evenly spaced, at which
// [Profile.BestDecodeThroughput] looks, as Dynamo's planner does.
const decodeGrid = 100

// BestDecodeThroughput returns the most tokens per second that a worker generates while the
// time between tokens is at most itl seconds, with sequences of that mean context, and the
// tokens in its KV pool then. Like Dynamo's planner it looks from a full pool down, since
// the time between tokens need not grow evenly. If no use keeps the limit, it returns the
// speed of the lowest one, and ok is false.
func (p *Profile) BestDecodeThroughput(itl, context float64) (tokensPerSecond, activeKV float64, ok bool) {
	pool := float64(p.Limits.KVTokens())
	if t := p.Measured.Decode; t != nil {
		pool = float64(t.MaxKVTokens)
	}
	context = max(1, context)
	most := min(pool, float64(p.Limits.MaxSeqs)*context)
	least := min(context, most) // one sequence
	for i := decodeGrid; i >= 0; i-- {
		activeKV = least + (most-least)*float64(i)/decodeGrid
		took := p.ITL(activeKV, context)
		if took <= itl || i == 0 {
			return p.decodeThroughput(activeKV, context, took), activeKV, took <= itl
		}
	}
	return 0, 0, false // not reached: the loop returns at 0
}

func (p *Profile) decodeThroughput(activeKV, context, itl float64) float64 {
	if t := p.Measured.Decode; t != nil {
		return t.throughput(activeKV, context) * float64(max(1, p.Devices))
	}
	if itl <= 0 {
		return 0
	}
	return max(1, activeKV/context) / itl
}
