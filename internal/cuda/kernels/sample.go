package kernels

import (
	"encoding/binary"
	"math"
)

// Sampling is what a sequence asks for. Its fields mean what they mean for the CPU engine;
// Repetition 1 is no penalty.
type Sampling struct {
	Seed                            uint64
	Position                        int // of the token in the output: draws depend on it and Seed only
	TopK                            int
	Temperature                     float32 // 0 takes the largest logit
	TopP, MinP                      float32
	Repetition, Frequency, Presence float32
}

// SamplingBytes is the size of a Sampling on the device.
const SamplingBytes = 40

// Append appends what kernels read.
func (p *Sampling) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, p.Seed)
	b = binary.LittleEndian.AppendUint32(b, uint32(p.Position))
	b = binary.LittleEndian.AppendUint32(b, uint32(p.TopK))
	for _, f := range [...]float32{p.Temperature, p.TopP, p.MinP, p.Repetition, p.Frequency, p.Presence} {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}

// Adjustment is a change of one token's logit.
type Adjustment struct {
	Token  int32
	Count  int32 // times in the output, for the frequency and presence penalties
	Listed bool  // in the prompt or the output, for the repetition penalty
	Bias   float32
}

// AdjustmentBytes is the size of an Adjustment on the device.
const AdjustmentBytes = 16

// Append appends what kernels read.
func (a *Adjustment) Append(b []byte) []byte {
	var listed uint32
	if a.Listed {
		listed = 1
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(a.Token))
	b = binary.LittleEndian.AppendUint32(b, uint32(a.Count))
	b = binary.LittleEndian.AppendUint32(b, listed)
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(a.Bias))
}

// Sample is the choice of next tokens.
type Sample struct {
	// Out are int32 [Rows]: tokens, or -1 where logits are broken: one is not a number, or
	// none is finite.
	Out    uint64
	Logits uint64 // float32 [Rows][Vocab]; adjustments change them
	Params uint64 // Sampling [Rows]
	// Mask, when not 0, is uint32 [Rows][MaskWords]: a bit for each token that is allowed.
	Mask      uint64
	MaskWords int
	// Adjustments of the row i are those from Starts[i] to Starts[i+1], int32 [Rows + 1];
	// no token has two in a row. MaxAdjustments bounds those of each row; with 0 there are
	// none.
	Adjustments, Starts uint64
	MaxAdjustments      int
	Rows                int
	Vocab               int
	Limit               int // tokens that may be chosen, the first ones
}

const (
	sampleThreads = 512
	adjustThreads = 128
)

// Sample adjusts logits and chooses tokens. The largest logits are those that the CPU
// engine takes. Draws are its own, too, but for rounding, unless top-k or top-p leave out
// tokens: then it goes through the rest in another order.
func (q *Queue) Sample(o Sample) error {
	s := shape{op: "sample"}
	s.count("rows", o.Rows)
	s.size("vocabulary", o.Vocab, 1)
	s.count("adjustments", o.MaxAdjustments)
	s.require(o.Limit >= 1 && o.Limit <= o.Vocab, "%d of %d tokens may be chosen", o.Limit, o.Vocab)
	s.require(o.Rows <= maxGridY, "%d rows, at most %d", o.Rows, maxGridY)
	s.present(o.Out, o.Logits)
	s.require(o.Params != 0 && o.Params%8 == 0, "parameters are at %#x", o.Params)
	if o.Mask != 0 {
		s.require(o.Mask%4 == 0 && o.MaskWords >= blocks(o.Limit, 32), "a mask of %d words at %#x for %d tokens", o.MaskWords, o.Mask, o.Limit)
	}
	if o.MaxAdjustments > 0 {
		s.present(o.Adjustments, o.Starts)
	}
	if s.err != nil || o.Rows == 0 {
		return s.err
	}
	if o.MaxAdjustments > 0 {
		q.args().Pointer(o.Logits).Pointer(o.Adjustments).Pointer(o.Starts).Pointer(o.Params).Int32(int32(o.Vocab))
		if err := q.run("adjust_logits", blocks(o.MaxAdjustments, adjustThreads), o.Rows, 1, adjustThreads, 0); err != nil {
			return err
		}
	}
	q.args().Pointer(o.Out).Pointer(o.Logits).Pointer(o.Mask).Pointer(o.Params).Int32(int32(o.Vocab)).Int32(int32(o.Limit)).Int32(int32(o.MaskWords))
	return q.run("sample", o.Rows, 1, 1, sampleThreads, 0)
}
