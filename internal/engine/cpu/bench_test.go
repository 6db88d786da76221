//go:build unix

package cpu

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// benchModels are the built-in model's shape and, unless -short, Qwen3-0.6B, as bf16
// and in quantized types.
func benchModels(b *testing.B, run func(b *testing.B, m *model.Model)) {
	shapes := []struct {
		name string
		spec modeltest.Spec
		kind func(string) gguf.Type
	}{
		{"tiny", modeltest.Spec{Family: "qwen3", Layers: 4, Hidden: 128, KVHeads: 2, FFN: 384, Vocab: 1280, DType: "bf16"}, nil},
		{"qwen3-0.6b", model.Qwen3Small(), nil},
		{"qwen3-0.6b-q8_0", model.Qwen3Small(), all(gguf.Q8_0)},
		{"qwen3-0.6b-q4_0", model.Qwen3Small(), all(gguf.Q4_0)},
		{"qwen3-0.6b-q4_K_M", model.Qwen3Small(), mediumTypes},
	}
	for _, shape := range shapes {
		b.Run(shape.name, func(b *testing.B) {
			if testing.Short() && shape.name != "tiny" {
				b.Skip("1.2 GB of weights; run without -short")
			}
			run(b, bits{spec: shape.spec, quantized: shape.kind}.open(b))
		})
	}
}

// mediumTypes are about those of a file that is called Q4_K_M.
func mediumTypes(name string) gguf.Type {
	if strings.Contains(name, "token_embd") || strings.Contains(name, "attn_v") || strings.Contains(name, "ffn_down") {
		return gguf.Q6K
	}
	return gguf.Q4K
}

// processorTime returns the processor time that the process has used.
func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure starts to count processor time. The returned function reports tokens a
// second, and processor milliseconds a token: unlike the former these hardly
// change when other processes share the machine.
func measure(b *testing.B) (report func(tokensPerStep int)) {
	start := processorTime(b)
	return func(tokensPerStep int) {
		tokens := float64(tokensPerStep * b.N)
		b.ReportMetric(tokens/b.Elapsed().Seconds(), "tok/s")
		b.ReportMetric(float64((processorTime(b)-start).Milliseconds())/tokens, "cpu-ms/tok")
	}
}

// BenchmarkPrefill runs whole prompts.
func BenchmarkPrefill(b *testing.B) {
	benchModels(b, func(b *testing.B, m *model.Model) {
		for _, n := range []int{128, 512, 2048} {
			b.Run(fmt.Sprint(n, "-tokens"), func(b *testing.B) {
				r := newRig(b, m, 2, n/64, Options{BlockSize: 64, KVDType: KVAuto})
				seq := engine.BatchSeq{Tokens: prompt(1, n, m.TokenLimit()), Blocks: table(0, n/64), Logits: r.newLogits()}
				r.step(b, seq)
				report := measure(b)
				for b.Loop() {
					r.step(b, seq)
				}
				report(n)
			})
		}
	})
}

// BenchmarkDecode runs steps of one token for several sequences at some context.
func BenchmarkDecode(b *testing.B) {
	benchModels(b, func(b *testing.B, m *model.Model) {
		for _, c := range []struct{ seqs, context, cores int }{{1, 0, 1}, {1, 0, 2}, {1, 1024, 2}, {1, 2048, 2}, {8, 0, 2}} {
			b.Run(fmt.Sprintf("%d-seqs/%d-context/%d-cores", c.seqs, c.context, c.cores), func(b *testing.B) {
				perSeq := c.context/64 + 1
				r := newRig(b, m, c.cores, c.seqs*perSeq, Options{BlockSize: 64, KVDType: KVAuto})
				batch := make([]engine.BatchSeq, c.seqs)
				for i := range batch {
					batch[i] = engine.BatchSeq{Tokens: []uint32{uint32(i)}, Start: c.context, Blocks: table(i*perSeq, perSeq), Logits: r.newLogits()}
				}
				r.step(b, batch...)
				b.ReportAllocs()
				report := measure(b)
				for b.Loop() {
					r.step(b, batch...)
				}
				report(c.seqs)
			})
		}
	})
}

// BenchmarkLoad brings the weights into the order of the kernels. The first times
// may wait for the machine to find memory.
func BenchmarkLoad(b *testing.B) {
	benchModels(b, func(b *testing.B, m *model.Model) {
		d := NewDevice("cpu:0", 2)
		defer d.Close()
		for b.Loop() {
			w, err := d.Load(m)
			if err != nil {
				b.Fatal(err)
			}
			if err := w.Close(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(d.CopyBytes(m))*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
	})
}
