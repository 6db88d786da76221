//go:build unix

package cpu

import (
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// clipLarge is the tower of LLaVA 1.5, CLIP-L/14-336, beside a text model of its width
// with one layer.
func clipLarge() modeltest.Spec {
	return modeltest.Spec{Family: "llava", Layers: 1, Hidden: 4096, Heads: 32, FFN: 64, Vocab: 512, DType: "bf16", Images: map[string]any{
		"vision_config": map[string]any{"model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
			"num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14},
		"image_token_index": 500,
	}}
}

// encodeWork counts the multiplications and additions of a whole view.
func encodeWork(v *model.Vision, hidden int) float64 {
	n := v.Positions()
	perRow := 4*v.Hidden*v.Hidden + 2*v.Hidden*v.FFN + 2*v.Hidden*n
	all := float64(v.Layers)*float64(n)*float64(perRow) + float64(n)*float64(3*v.PatchSize*v.PatchSize*v.Hidden)
	in := v.Hidden * hidden * v.Projector.Factor * v.Projector.Factor
	if v.Projector.Kind == model.ProjectMLP {
		in += hidden * hidden
	}
	return 2 * (all + float64(v.Tokens())*float64(in))
}

// peakRate returns the multiplications and additions of float32 that a second of processor
// time can do, while as many cores as a device of two has are busy.
func peakRate(b *testing.B) float64 {
	peaks := kernel.Peaks()
	if len(peaks) == 0 {
		b.Skip("no kernels")
	}
	const turns = 1 << 20
	begin := processorTime(b)
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() {
			for range 32 {
				peaks[0].Run(turns / 32)
			}
		})
	}
	wait.Wait()
	return float64(2*turns*peaks[0].Ops) / (processorTime(b) - begin).Seconds()
}

// shareOfPeak runs a benchmark. It reports how much of the processor's multiply-adds of
// float32 the operations of one run take, in the processor time that they used: other work
// on the machine changes that less than the time that passed.
func shareOfPeak(b *testing.B, d *Device, ops float64, unit string, run func()) {
	run()
	stop := d.AccountOperators()
	var used time.Duration
	var peak float64
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		peak += peakRate(b)
		b.StartTimer()
		begin := processorTime(b)
		run()
		used += processorTime(b) - begin
	}
	seconds := used.Seconds() / float64(b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), unit+"/s")
	b.ReportMetric(seconds, "cpu-s/"+unit)
	b.ReportMetric(100*ops/seconds/(peak/float64(b.N)), "%peak")
	for _, op := range stop() {
		b.Logf("%-10s %8.2f ms", op.Operator, op.Time.Seconds()*1e3/float64(b.N))
	}
}

// BenchmarkEncode encodes one whole view.
func BenchmarkEncode(b *testing.B) {
	for _, shape := range []struct {
		name string
		spec modeltest.Spec
	}{{"smolvlm-256m", model.SmolVLMSmall()}, {"clip-l-336", clipLarge()}} {
		b.Run(shape.name, func(b *testing.B) {
			if testing.Short() {
				b.Skip("run without -short")
			}
			m := modeltest.Open(b, shape.spec)
			d := newTestDevice(b, 2)
			e := newEncoder(b, d, m)
			v := m.Config().Vision
			pixels := goldenTensor{name: "pixels", shape: []int{3, v.ImageSize, v.ImageSize}, width: 1}.values(1)
			views := []engine.View{{W: v.ImageSize, H: v.ImageSize, Pixels: pixels}}
			shareOfPeak(b, d, encodeWork(v, m.Config().Hidden), "image", func() { encode(b, e, views...) })
		})
	}
}

// BenchmarkPrefillShare is what to compare BenchmarkEncode with: a prompt of 512 tokens.
func BenchmarkPrefillShare(b *testing.B) {
	if testing.Short() {
		b.Skip("run without -short")
	}
	const n = 512
	spec := model.Qwen3Small()
	spec.Layers, spec.Vocab = 12, 2048 // speed is that of its layers
	m := modeltest.Open(b, spec)
	d := newTestDevice(b, 2)
	r := newRigOn(b, d, m, n/64, Options{BlockSize: 64})
	seq := engine.BatchSeq{Tokens: prompt(1, n, m.TokenLimit()), Blocks: table(0, n/64), Logits: r.newLogits()}
	ops := 2 * float64(spec.Hidden*spec.Vocab)
	for i := range r.weights.layers {
		l := &r.weights.layers[i]
		for _, m := range []*matrix{&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down} {
			ops += 2 * n * float64(m.rows) * float64(m.cols)
		}
		ops += 4 * n * (n + 1) / 2 * float64(spec.Heads*spec.HeadDim)
	}
	shareOfPeak(b, d, ops, "prompt", func() { r.step(b, seq) })
}
