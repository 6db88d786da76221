package engine

import "time"

// pace measures how long steps take and derives how long they may take.
type pace struct {
	target time.Duration // between two tokens of a sequence
	model  stepModel
	// wait is the recent mean time, in seconds, that passed between the ends of two steps
	// without computing: other users of the device, drawing tokens.
	wait  float64
	began time.Time     // of the current step
	gap   time.Duration // from the end of the previous step until then; 0 after a pause
	ended time.Time     // of the previous step; zero after a pause
}

// waitGain is the weight of one step in the mean of waits.
const waitGain = 0.2

// begin notes that the backend starts a step.
func (p *pace) begin(now time.Time) {
	p.began, p.gap = now, 0
	if !p.ended.IsZero() {
		p.gap = now.Sub(p.ended)
	}
}

// pause notes that the engine has nothing to compute.
func (p *pace) pause() { p.ended = time.Time{} }

// end learns from a step with work w that the backend has computed.
func (p *pace) end(now time.Time, b Backend, w *stepWork) StepReport {
	r := StepReport{
		Decodes: w.decodes, DecodeContext: w.decodeContext, PrefillTokens: w.tokens, ChunkContext: w.chunkContext, Wall: now.Sub(p.began), Gap: p.gap,
	}
	r.Busy = r.Wall
	if t, ok := b.(BusyTimer); ok {
		r.Busy = min(max(t.Busy(), 0), r.Wall)
	}
	if p.model.steps > 0 {
		r.Predicted = time.Duration(p.model.predict(w) * float64(time.Second))
	}
	p.model.learn(w, r.Busy)
	since := p.ended
	if since.IsZero() {
		since = p.began
	}
	p.wait += waitGain * ((now.Sub(since) - r.Busy).Seconds() - p.wait)
	p.ended = now
	return r
}

// chunkTime returns how many seconds of chunks may be added to a step with work w. It
// stays below the target by twice the prediction error. Waits for other users of the
// device reduce the target by up to half. Smaller chunks could not make up for longer
// waits.
func (p *pace) chunkTime(w *stepWork) float64 {
	target := p.target.Seconds()
	usable := target - min(max(p.wait, 0), target/2)
	return usable/(1+2*min(p.model.spread, 0.5)) - p.model.predict(w)
}

// prefillRate returns the predicted speed of a step with nothing but a chunk of n tokens,
// in tokens per second; 0 before the first step.
func (p *pace) prefillRate(n int) float64 {
	if p.model.steps == 0 {
		return 0
	}
	return float64(n) / p.model.predict(&stepWork{tokens: n, chunkContext: chunkContext(0, n)})
}

// StepReport describes one computed step. Its counts are the features that the duration of
// a step depends on.
type StepReport struct {
	Decodes       int           // entries of one token: decoding sequences and their drafts
	DecodeContext int           // positions that those attend to, summed
	PrefillTokens int           // tokens in chunks of prompts
	ChunkContext  int           // positions that each of these tokens attends to, summed
	Predicted     time.Duration // predicted value of Busy; 0 for the very first step
	Busy          time.Duration // computing
	Wall          time.Duration // computing and waiting for the device
	// Gap is the time since the step before, in which tokens were handed out and this step was
	// put together; 0 if there was nothing to compute meanwhile.
	Gap time.Duration
}

// report publishes the report of a step.
func (e *Engine) report(r StepReport) {
	c := &e.count
	c.StepNanosTotal += uint64(r.Busy)
	c.StepWaitNanosTotal += uint64(r.Wall - r.Busy)
	c.StepGapNanosTotal += uint64(r.Gap)
	if r.Predicted > 0 {
		c.StepMissNanosTotal += uint64(max(r.Busy-r.Predicted, r.Predicted-r.Busy))
	}
	if r.Decodes > 0 && r.PrefillTokens > 0 {
		c.MixedStepsTotal++
		c.MixedTokensTotal += uint64(r.PrefillTokens)
	}
	c.StepDecodesTotal += uint64(r.Decodes)
	c.StepDecodeContextTotal += uint64(r.DecodeContext)
	c.StepTokensTotal += uint64(r.PrefillTokens)
	c.StepChunkContextTotal += uint64(r.ChunkContext)
	if e.cfg.Observe != nil {
		e.cfg.Observe(r)
	}
}
