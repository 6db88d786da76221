package kerneltest

import (
	"math"
	"slices"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// sampleCase holds the sampling parameters of a batch's rows, each with seeds of its own.
type sampleCase struct {
	name  string
	batch []kernels.Sampling
	// shape changes the logits of a row, which are of a normal distribution.
	shape       func(row []float32)
	masked      bool
	adjustments int
	vocab       int // 0: 1100
}

func many(n int, p kernels.Sampling) []kernels.Sampling {
	batch := slices.Repeat([]kernels.Sampling{p}, n)
	for i := range batch {
		batch[i].Seed, batch[i].Position = uint64(i)*0x1234567, i%5
	}
	return batch
}

func sampleCases() (all []Case) {
	for _, c := range []sampleCase{
		{name: "greedy", batch: many(2, kernels.Sampling{})},
		{name: "temperature", batch: many(6, kernels.Sampling{Temperature: 0.8})},
		{name: "cold", batch: many(2, kernels.Sampling{Temperature: 1e-40})},
		{name: "top-k", batch: many(6, kernels.Sampling{Temperature: 1.5, TopK: 7})},
		{name: "top-p", batch: many(6, kernels.Sampling{Temperature: 1.2, TopP: 0.7})},
		{name: "all-of-them", batch: many(6, kernels.Sampling{Temperature: 1, TopP: 0.9, TopK: 300, MinP: 0.02})},
		{name: "more-than-all", batch: many(2, kernels.Sampling{Temperature: 1, TopP: 1, TopK: 1 << 20})},
		{name: "equal-logits", batch: many(6, kernels.Sampling{Temperature: 1, TopP: 0.5, TopK: 100}), shape: func(row []float32) {
			for i, l := range row {
				row[i] = float32(math.Round(float64(l)))
			}
		}},
		{name: "zeros-of-both-signs", batch: many(4, kernels.Sampling{Temperature: 1, TopK: 3}), shape: func(row []float32) {
			for i := range row {
				row[i] = float32(math.Copysign(0, float64(i%2)-0.5))
			}
		}},
		{name: "masks", batch: many(6, kernels.Sampling{Temperature: 1, TopP: 0.9}), masked: true},
		{name: "penalties", batch: many(6, kernels.Sampling{Temperature: 1, Repetition: 1.3, Frequency: 0.4, Presence: -0.5}), adjustments: 200},
		{name: "masks-and-penalties", batch: many(5, kernels.Sampling{Temperature: 1, Repetition: 1.3}), masked: true, adjustments: 1000},
		{name: "nothing-finite", batch: many(2, kernels.Sampling{Temperature: 1}), shape: func(row []float32) {
			for i := range row {
				row[i] = float32(math.Inf(-1))
			}
		}},
		{name: "not-a-number", batch: many(2, kernels.Sampling{}), shape: func(row []float32) { row[len(row)/2] = float32(math.NaN()) }},
		{name: "infinite", batch: many(2, kernels.Sampling{}), shape: func(row []float32) { row[3] = float32(math.Inf(1)) }},
		{name: "llama-8b", batch: many(8, kernels.Sampling{Temperature: 1, TopP: 0.95, TopK: 50}), vocab: 128256},
	} {
		all = append(all, Case{Name: "sample/" + c.name, Large: c.vocab > 0, Prepare: c.prepare})
	}
	return all
}

func (c sampleCase) prepare(l *Lab) func(q *kernels.Queue) error {
	rows, vocab := len(c.batch), 1100
	if c.vocab > 0 {
		vocab = c.vocab
	}
	limit := vocab - 10
	logits, params, masks := make([]float32, rows*vocab), []byte(nil), 0
	for r := range rows {
		row := logits[r*vocab : (r+1)*vocab]
		for i := range row {
			row[i] = float32(l.NormFloat64() * 3)
		}
		if c.shape != nil {
			c.shape(row[:limit])
		}
		for i := limit; i < vocab; i++ {
			row[i] = 1e30 // nobody may choose these
		}
		p := c.batch[r]
		if c.masked && r != 1 { // one row allows everything
			masks++
			p.Mask = masks
		}
		params = p.Append(params)
	}
	// Adjustments change logits.
	address := l.Out("logits", 4*len(logits), Tolerance{Ulps: 0x1p-14, Scale: 1, Float: true})
	putFloats(l.Outputs[len(l.Outputs)-1].Memory, logits)
	o := kernels.Sample{
		Out: l.Out("tokens", 4*rows, Exact), Logits: address, Params: l.Bytes(params), Rows: rows, Vocab: vocab, Limit: limit,
	}
	if c.masked {
		o.MaskWords = (limit + 31) / 32
		bits := make([]int32, masks*o.MaskWords)
		for i := range bits {
			bits[i] = int32(l.Uint32() & l.Uint32())
		}
		o.Masks = l.Int32s(bits...)
	}
	if c.adjustments > 0 {
		var list []byte
		starts := []int32{0}
		for r := range rows {
			n := c.adjustments * r / (rows - 1) // none in the first row
			for _, token := range l.Perm(vocab + 5)[:n] {
				a := kernels.Adjustment{Token: int32(token), Count: int32(l.IntN(4)), Bias: float32(l.IntN(3) - 1), Listed: l.IntN(2) == 0}
				if l.IntN(10) == 0 {
					a.Bias = float32(math.Inf(-1))
				}
				list = a.Append(list)
			}
			starts = append(starts, starts[r]+int32(n))
		}
		o.Adjustments, o.Starts = l.Bytes(list), l.Int32s(starts...)
	}
	return func(q *kernels.Queue) error { return q.Sample(o) }
}
