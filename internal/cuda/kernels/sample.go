package kernels

import (
	"encoding/binary"
	"math"
)

// Sampling holds the sampling parameters of a sequence, with the meaning they have in the CPU engine;
// Repetition 1 is no penalty.
type Sampling struct {
	Seed                            uint64
	Position                        int // of the token in the output: draws depend on it and Seed only
	TopK                            int
	Temperature                     float32 // 0 takes the largest logit
	TopP, MinP                      float32
	Repetition, Frequency, Presence float32
	// Mask is the number of the mask with the tokens that are allowed, from 1 on; 0 allows all.
	Mask int
}

// SamplingBytes is the size of a Sampling on the device.
const SamplingBytes = 48

// Append appends what kernels read.
func (p *Sampling) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, p.Seed)
	b = binary.LittleEndian.AppendUint32(b, uint32(p.Position))
	b = binary.LittleEndian.AppendUint32(b, uint32(p.TopK))
	for _, f := range [...]float32{p.Temperature, p.TopP, p.MinP, p.Repetition, p.Frequency, p.Presence} {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(p.Mask-1))
	return binary.LittleEndian.AppendUint32(b, 0)
}

// Adjustment is a change of one token's logit: its bias, then the penalties. A bias of
// negative infinity forbids the token.
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
	// Masks, when there are some, are uint32 [Masks][MaskWords]: a bit for each token that is
	// allowed.
	Masks     uint64
	MaskWords int
	// Adjustments of the row i are those from Starts[i] to Starts[i+1], int32 [Rows + 1];
	// no token has two in a row. Without Starts there are none.
	Adjustments, Starts uint64
	Rows                int
	Vocab               int
	Limit               int // tokens that may be chosen, the first ones
}

const sampleThreads = 512

// Sample adjusts logits and chooses tokens. The largest logits are those that the CPU
// engine takes. Draws are its own, too, but for rounding, unless top-k or top-p leave out
// tokens: then it goes through the rest in another order.
func (q *Queue) Sample(o Sample) error {
	s := shape{op: "sample"}
	s.count("rows", o.Rows)
	s.size("vocabulary", o.Vocab, 1)
	s.require(o.Limit >= 1 && o.Limit <= o.Vocab, "%d of %d tokens may be chosen", o.Limit, o.Vocab)
	s.require(o.Rows <= maxGridY, "%d rows, at most %d", o.Rows, maxGridY)
	s.present(o.Out, o.Logits)
	s.require(o.Params != 0 && o.Params%8 == 0, "parameters are at %#x", o.Params)
	if o.Masks != 0 {
		s.require(o.Masks%4 == 0 && o.MaskWords >= blocks(o.Limit, 32), "masks of %d words at %#x for %d tokens", o.MaskWords, o.Masks, o.Limit)
	}
	if o.Starts != 0 {
		s.present(o.Adjustments, o.Starts)
	}
	if s.err != nil || o.Rows == 0 {
		return s.err
	}
	q.args().Pointer(o.Out).Pointer(o.Logits).Pointer(o.Masks).Pointer(o.Params).Pointer(o.Adjustments).Pointer(o.Starts).
		Int32(int32(o.Vocab)).Int32(int32(o.Limit)).Int32(int32(o.MaskWords))
	return q.run("sample", o.Rows, 1, 1, sampleThreads, 0)
}
