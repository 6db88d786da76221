//go:build unix

package cpu

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// attentionSpec has the attention of Qwen3-0.6B and hardly anything else.
func attentionSpec(layers, kvHeads int) modeltest.Spec {
	return modeltest.Spec{Family: "qwen3", Layers: layers, Hidden: 32, Heads: 2 * kvHeads, KVHeads: kvHeads, HeadDim: 128,
		FFN: 32, Vocab: 260, ContextLen: 16 << 10, DType: "bf16"}
}

// attend runs the attention of all layers for an entry whose last step was the same.
func (r rig) attend(b *testing.B, seq engine.BatchSeq) {
	s, c := &r.Backend.step, r.weights.config
	r.pass.fill(new(cursor), []engine.BatchSeq{seq}, r.info.KV.BlockSize, c.Heads/c.KVHeads)
	for i := range r.weights.layers {
		s.attn.layer = i
		n := s.planAttention()
		if r.device.pool.run(&s.attnTask, 0, n, func() bool { return false }) != n {
			b.Fatal("not all items ran")
		}
	}
}

// readSpeed returns how many bytes of KV memory the device reads, one line after the
// other, in a second of processor time.
func (r rig) readSpeed(b *testing.B) float64 {
	const piece = 1 << 18
	data := r.memory[0].Bytes()
	sums := make([]uint64, len(data)/piece)
	read := task{run: func(_ *lane, item int) {
		for p := data[item*piece:][:piece]; len(p) >= 256; p = p[256:] {
			sums[item] += binary.LittleEndian.Uint64(p) + binary.LittleEndian.Uint64(p[64:]) +
				binary.LittleEndian.Uint64(p[128:]) + binary.LittleEndian.Uint64(p[192:])
		}
	}}
	best := 0.0
	for range 3 {
		used := processorTime(b)
		r.device.pool.run(&read, 0, len(sums), func() bool { return false })
		best = max(best, float64(len(sums)*piece)/(processorTime(b)-used).Seconds())
	}
	return best
}

// BenchmarkDecodeAttention runs the attention of one token after some context. It
// reports how fast KV is read, and that speed as a share of plain reading; both count
// processor time, which tells more than the clock where other work shares the machine.
func BenchmarkDecodeAttention(b *testing.B) {
	for _, kvHeads := range []int{8, 1} {
		for _, c := range []struct{ context, layers int }{{512, 28}, {2048, 28}, {8192, 8}} {
			layers := c.layers * 8 / kvHeads
			for _, kv := range []string{"f32", "bf16", "int8"} {
				for _, cores := range []int{1, 2} {
					b.Run(fmt.Sprintf("%d-heads/%d-context/%s/%d-cores", kvHeads, c.context, kv, cores), func(b *testing.B) {
						r := newRig(b, modeltest.Open(b, attentionSpec(layers, kvHeads)), cores, c.context/64, Options{BlockSize: 64, KVDType: kv})
						r.step(b, engine.BatchSeq{Tokens: prompt(1, c.context, 256), Blocks: table(0, c.context/64)})
						seq := engine.BatchSeq{Tokens: []uint32{1}, Start: c.context - 1, Blocks: table(0, c.context/64)}
						r.step(b, seq)
						b.ReportAllocs()
						used := processorTime(b)
						bytes := float64(r.Info().KV.BlockBytes()) / 64 * float64(c.context)
						for b.Loop() {
							r.attend(b, seq)
						}
						used = processorTime(b) - used
						b.ReportMetric(100*bytes*float64(b.N)/used.Seconds()/r.readSpeed(b), "%read")
						b.ReportMetric(bytes*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
						b.ReportMetric(bytes*float64(b.N)/used.Seconds()/1e9, "GB/cpu-s")
					})
				}
			}
		}
	}
}

// BenchmarkPrefillAttention runs the attention of the last 512 tokens of a prompt.
func BenchmarkPrefillAttention(b *testing.B) {
	for _, kv := range []string{"f32", "bf16", "int8"} {
		for _, end := range []int{512, 2048, 8192} {
			b.Run(fmt.Sprintf("%d-tokens/%s", end, kv), func(b *testing.B) {
				const layers = 4
				r := newRig(b, modeltest.Open(b, attentionSpec(layers, 8)), 2, end/64, Options{BlockSize: 64, KVDType: kv})
				tokens := prompt(1, end, 256)
				r.step(b, engine.BatchSeq{Tokens: tokens, Blocks: table(0, end/64)})
				seq := engine.BatchSeq{Tokens: tokens[end-passTokens:], Start: end - passTokens, Blocks: table(0, end/64)}
				r.step(b, seq)
				used := processorTime(b)
				for b.Loop() {
					r.attend(b, seq)
				}
				positions := float64(end-passTokens)*passTokens + passTokens*(passTokens+1)/2
				work := positions * layers * 16 * 128 * 4 * float64(b.N) / 1e9
				b.ReportMetric(work/b.Elapsed().Seconds(), "GFLOP/s")
				b.ReportMetric(work/(processorTime(b)-used).Seconds(), "GFLOP/cpu-s")
			})
		}
	}
}
