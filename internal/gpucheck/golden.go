package gpucheck

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/dynctl/dynctl/internal/cuda/kernels/kerneltest"
)

// Golden is what a case makes of its operands, to be compared with what another driver,
// device or release makes of them.
type Golden struct {
	Case    string   `json:"case"`
	Device  string   `json:"device"`
	CUDA    string   `json:"cuda"`
	PTX     []string `json:"ptx"`
	Outputs []Sample `json:"outputs"`
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
	_, hashes := r.used()
	g := &Golden{Case: c.Name, Device: r.about.Device, CUDA: r.about.CUDA, PTX: hashes, Pretended: r.spec.Pretended}
	for i, o := range first {
		if !bytes.Equal(o.Memory, second[i].Memory) {
			return f, fmt.Errorf("%s is something else the second time", o.Name)
		}
		g.Outputs = append(g.Outputs, sample(o))
	}
	f.golden = g
	return f, nil
}

func sample(o kerneltest.Output) Sample {
	sum := sha256.Sum256(o.Memory)
	s := Sample{Name: o.Name, Bytes: len(o.Memory), SHA256: hex.EncodeToString(sum[:])}
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
