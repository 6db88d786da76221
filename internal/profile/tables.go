package profile

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

// Measured are tables of whole requests, as NVIDIA Dynamo's profiler measures them.
type Measured struct {
	Prefill *PrefillTable `json:"prefill,omitempty"`
	Decode  *DecodeTable  `json:"decode,omitempty"`
}

// PrefillTable tells how long prompts take on an idle worker. Points are in order of ISL.
type PrefillTable struct {
	ISL        []float64 `json:"isl"`                                // tokens
	TTFT       []float64 `json:"ttft_s"`                             // seconds
	Throughput []float64 `json:"throughput_per_device_tokens_per_s"` // prompt tokens
}

// DecodeTable tells how long the tokens of answers take. Point i is measured with the share
// KVUsage[i] of a pool of MaxKVTokens in use and with sequences of the mean length Context[i].
type DecodeTable struct {
	KVUsage     []float64 `json:"kv_usage"`
	Context     []float64 `json:"context"`                            // tokens
	ITL         []float64 `json:"itl_s"`                              // seconds
	Throughput  []float64 `json:"throughput_per_device_tokens_per_s"` // tokens of answers
	MaxKVTokens int       `json:"max_kv_tokens"`
}

// maxPoints bounds the points of a table.
const maxPoints = 1 << 20

func (m Measured) validate() error {
	if t := m.Prefill; t != nil {
		if err := checkColumns("prefill", column{"isl", t.ISL}, column{"ttft_s", t.TTFT}, column{"throughput_per_device_tokens_per_s", t.Throughput}); err != nil {
			return err
		}
		for i := 1; i < len(t.ISL); i++ {
			if t.ISL[i] <= t.ISL[i-1] {
				return fmt.Errorf("prefill.isl: %v follows %v: lengths must grow", t.ISL[i], t.ISL[i-1])
			}
		}
	}
	if t := m.Decode; t != nil {
		if err := checkColumns("decode", column{"kv_usage", t.KVUsage}, column{"context", t.Context}, column{"itl_s", t.ITL}, column{"throughput_per_device_tokens_per_s", t.Throughput}); err != nil {
			return err
		}
		if t.MaxKVTokens < 1 || t.MaxKVTokens > maxCount {
			return fmt.Errorf("decode.max_kv_tokens: %d is not between 1 and %d", t.MaxKVTokens, maxCount)
		}
	}
	return nil
}

type column struct {
	name   string
	values []float64
}

// checkColumns returns an error unless columns are equally long, with finite values that are
// not negative.
func checkColumns(table string, columns ...column) error {
	n := len(columns[0].values)
	if n == 0 {
		return fmt.Errorf("%s: no points", table)
	}
	if n > maxPoints {
		return fmt.Errorf("%s: %d points are more than %d", table, n, maxPoints)
	}
	for _, c := range columns {
		if len(c.values) != n {
			return fmt.Errorf("%s.%s: %d values beside %d of %s", table, c.name, len(c.values), n, columns[0].name)
		}
		for i, v := range c.values {
			if !(v >= 0 && v <= maxRate) {
				return fmt.Errorf("%s.%s: value %d is %v, not between 0 and %v", table, c.name, i, v, float64(maxRate))
			}
		}
	}
	return nil
}

// ttft interpolates between the two nearest lengths. Shorter prompts take as long as the
// shortest measured one, longer ones go on in a straight line.
func (t *PrefillTable) ttft(isl float64) float64 {
	n := len(t.ISL)
	if n > 1 && isl > t.ISL[n-1] {
		slope := (t.TTFT[n-1] - t.TTFT[n-2]) / (t.ISL[n-1] - t.ISL[n-2])
		return t.TTFT[n-1] + max(slope, 0)*(isl-t.ISL[n-1])
	}
	return interpolate(t.ISL, t.TTFT, isl)
}

func (t *PrefillTable) throughput(isl float64) float64 { return interpolate(t.ISL, t.Throughput, isl) }

func (t *DecodeTable) itl(activeKV, context float64) float64 { return t.at(t.ITL, activeKV, context) }

func (t *DecodeTable) throughput(activeKV, context float64) float64 {
	return t.at(t.Throughput, activeKV, context)
}

// at interpolates in the two rows of equal context around the given one, by the use of the
// KV pool, and then between these. Beyond the measured area the nearest edge counts. Points
// of a profiler stand in such rows: it measures each context with a number of loads.
func (t *DecodeTable) at(z []float64, activeKV, context float64) float64 {
	use := activeKV / float64(t.MaxKVTokens)
	below, above := math.Inf(-1), math.Inf(1) // contexts of the two rows
	for _, c := range t.Context {
		if c <= context {
			below = max(below, c)
		}
		if c >= context {
			above = min(above, c)
		}
	}
	switch {
	case math.IsInf(below, -1) || below == above:
		return t.inRow(z, above, use)
	case math.IsInf(above, 1):
		return t.inRow(z, below, use)
	}
	low, high := t.inRow(z, below, use), t.inRow(z, above, use)
	return low + (high-low)*(context-below)/(above-below)
}

func (t *DecodeTable) inRow(z []float64, context, use float64) float64 {
	var xs, ys []float64
	for i, c := range t.Context {
		if c == context {
			xs, ys = append(xs, t.KVUsage[i]), append(ys, z[i])
		}
	}
	if !slices.IsSorted(xs) {
		sort.Sort(&pairs{xs, ys})
	}
	return interpolate(xs, ys, use)
}

type pairs struct{ xs, ys []float64 }

func (p *pairs) Len() int           { return len(p.xs) }
func (p *pairs) Less(i, j int) bool { return p.xs[i] < p.xs[j] }
func (p *pairs) Swap(i, j int) {
	p.xs[i], p.xs[j] = p.xs[j], p.xs[i]
	p.ys[i], p.ys[j] = p.ys[j], p.ys[i]
}

// interpolate is linear between the nearest of the sorted xs and constant beyond them.
func interpolate(xs, ys []float64, x float64) float64 {
	i := sort.SearchFloat64s(xs, x)
	switch {
	case i == 0:
		return ys[0]
	case i == len(xs):
		return ys[i-1]
	case xs[i] == xs[i-1]:
		return ys[i]
	}
	return ys[i-1] + (ys[i]-ys[i-1])*(x-xs[i-1])/(xs[i]-xs[i-1])
}
