package gpucheck

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"

	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
)

// Golden holds the outputs of a case, to be compared with those of another driver,
// device or release.
type Golden struct {
	Case    string   `json:"case"`
	Device  string   `json:"device"`
	CUDA    string   `json:"cuda"`
	PTX     []string `json:"ptx"`
	Outputs []Sample `json:"outputs,omitempty"`
	// Answers are greedy ones of a model.
	Answers []Answer `json:"answers,omitempty"`
	// Pretended goldens are of the functions in Go.
	Pretended bool `json:"pretended,omitempty"`
}

// Sample is an output: all of it as a checksum, and some values.
type Sample struct {
	Name   string `json:"name"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
	// Values are at most 64, from equal distances. Those that JSON has no number for are texts.
	Values []any `json:"values"`
	// Near holds the tolerance of each value, nil where all bytes count; see
	// [kerneltest.Tolerance].
	Near *Near `json:"near,omitempty"`
}

// Near is a tolerance: units in the last place of bf16, for values of at least a scale.
type Near struct {
	Ulps  float64 `json:"ulps"`
	Scale float64 `json:"scale"`
}

// Answer is a model's answer to a prompt, token by token.
type Answer struct {
	Tokens []uint32 `json:"tokens"`
	// Top are the most likely tokens at each place, the best first.
	Top [][]Likely `json:"top"`
}

// Likely is a token with its log probability.
type Likely struct {
	Token   uint32  `json:"token"`
	Logprob float64 `json:"logprob"`
}

// likelyTokens is the number of likely tokens kept at each position.
const likelyTokens = 20

// likely finds the most likely tokens.
func likely(logits []float32) []Likely {
	var sum float64
	top := float64(logits[largest(logits)])
	all := make([]Likely, len(logits))
	for i, v := range logits {
		sum += math.Exp(float64(v) - top)
		all[i] = Likely{uint32(i), float64(v) - top}
	}
	slices.SortStableFunc(all, func(a, b Likely) int { return cmp.Compare(b.Logprob, a.Logprob) })
	all = all[:min(likelyTokens, len(all))]
	for i := range all {
		all[i].Logprob -= math.Log(sum)
	}
	return all
}

const sampledValues = 64

func goldenCases() (all []Case) {
	for _, c := range kerneltest.Cases() {
		all = append(all, Case{Name: c.Name, run: func(ctx context.Context, r *rig) (finding, error) { return r.golden(ctx, c) }})
	}
	return all
}

// golden runs a case twice: a kernel's result depends on nothing but its operands.
func (r *rig) golden(ctx context.Context, c kerneltest.Case) (f finding, err error) {
	if c.Large && r.spec.Small {
		return f, skipped(tooLarge)
	}
	first, err := r.perform(ctx, c)
	if err != nil {
		return f, err
	}
	second, err := r.perform(ctx, c)
	if err != nil {
		return f, err
	}
	g := r.newGolden(c.Name)
	for i, o := range first {
		if !bytes.Equal(o.Memory, second[i].Memory) {
			return f, fmt.Errorf("%s is something else the second time", o.Name)
		}
		g.Outputs = append(g.Outputs, sample(o))
	}
	f.golden = g
	return f, nil
}

// newGolden is one without contents.
func (r *rig) newGolden(name string) *Golden {
	_, hashes := r.used()
	return &Golden{Case: name, Device: r.about.Device, CUDA: r.about.CUDA, PTX: hashes, Pretended: r.spec.Pretended}
}

func sample(o kerneltest.Output) Sample {
	sum := sha256.Sum256(o.Memory)
	s := Sample{Name: o.Name, Bytes: len(o.Memory), SHA256: hex.EncodeToString(sum[:])}
	if !o.Near.Counts && o.Near.KV == nil {
		s.Near = &Near{o.Near.Ulps, o.Near.Scale}
	}
	n := o.Len()
	for i := range min(n, sampledValues) {
		v := o.Value(i * n / min(n, sampledValues))
		if v-v != 0 { // infinite, or not a number
			s.Values = append(s.Values, fmt.Sprint(v))
			continue
		}
		s.Values = append(s.Values, v)
	}
	return s
}
