package bench

import (
	"context"
	"time"
)

// prefill returns the time per token of one prompt of n tokens.
func (r *rig) prefill(ctx context.Context, n int) (time.Duration, error) {
	begin := time.Now()
	_, err := r.generate(ctx, generation{tokens: r.prompt(n), output: 1})
	return time.Since(begin) / time.Duration(n), err
}

// prefillRate measures one prompt of n tokens.
func (r *rig) prefillRate(ctx context.Context, n int) (Sample, error) {
	return r.metered(ctx, func() (float64, error) {
		per, err := r.prefill(ctx, n)
		return 1 / per.Seconds(), err
	})
}

// decoding describes sequences that decode concurrently.
type decoding struct {
	seqs  int
	past  int // tokens of context, whose KV is in place already
	steps int // tokens of each sequence at most
	// window ends the sequences early, and only tokens count that came while all were
	// running. If it is 0, they begin together, with some context, and run to their end.
	window time.Duration
}

// decodeRate measures the tokens per second of all sequences together.
func (r *rig) decodeRate(ctx context.Context, d decoding) (Sample, error) {
	return r.metered(ctx, func() (float64, error) { return r.decode(ctx, d) })
}

func (r *rig) decode(ctx context.Context, d decoding) (float64, error) {
	var together *window
	var begin *gate
	if d.window > 0 {
		together = newWindow(d.seqs, d.window)
	} else {
		begin = newGate(d.seqs)
	}
	gs := make([]generation, d.seqs)
	for i := range gs {
		gs[i] = generation{tokens: r.prompt(d.past + 1), output: d.steps, window: together, given: d.past > 0, gate: begin}
	}
	marks, err := r.generateAll(ctx, gs)
	if err != nil {
		return 0, err
	}
	if begin != nil {
		return float64(d.seqs*d.steps) / lastMark(marks).Sub(begin.opened).Seconds(), nil
	}
	n, took, err := overlap(marks)
	if err != nil {
		return 0, err
	}
	return float64(n) / took.Seconds(), nil
}

// lastMark returns when the last token of all sequences came.
func lastMark(seqs [][]mark) (last time.Time) {
	for _, s := range seqs {
		if n := len(s); n > 0 && s[n-1].at.After(last) {
			last = s[n-1].at
		}
	}
	return last
}

// metered runs f, which returns a rate of tokens, and adds the processor time per
// computed token.
func (r *rig) metered(ctx context.Context, f func() (float64, error)) (Sample, error) {
	tokens := r.engine.Stats().ComputedTotal
	before, known := cpuTime()
	rate, err := f()
	if err == nil {
		err = r.idle(ctx)
	}
	if err != nil {
		return nil, err
	}
	s := Sample{keyRate: rate}
	if after, _ := cpuTime(); known {
		s[keyCPU] = (after - before).Seconds() * 1e3 / float64(r.engine.Stats().ComputedTotal-tokens)
	}
	return s, nil
}
