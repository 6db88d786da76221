package cpu

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/enginetest"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

// gridGoldens calls f for each recorded prompt whose images stand in grids.
func gridGoldens(t *testing.T, f func(t *testing.T, g golden, r rig, p illustrated)) {
	n := 0
	visionGoldens(t, func(name string, g golden) {
		if g.Images == nil {
			return
		}
		m := openGolden(t, g)
		if p := g.illustrated(t, newEncoder(t, newTestDevice(t, 2), m)); p.positions != nil {
			n++
			t.Run(name, func(t *testing.T) { f(t, g, newRig(t, m, 2, 64, Options{BlockSize: 4}), p) })
		}
	})
	if n < 4 {
		t.Errorf("%d recorded prompts", n)
	}
}

// TestGridBits: the logits after a prompt with images are the same bits wherever it is cut, in
// whatever company, and others without the positions of its images.
func TestGridBits(t *testing.T) {
	gridGoldens(t, func(t *testing.T, g golden, r rig, p illustrated) {
		n := len(p.tokens)
		want, got := r.newLogits(), r.newLogits()
		step := func(p illustrated, start, end, block int) {
			e := p.entry(start, end)
			e.Blocks = table(block, 16)
			if end == n {
				e.Logits = got
			}
			r.step(t, engine.BatchSeq{Tokens: []uint32{uint32(end)}, Blocks: table(48, 16)}, e)
		}
		step(p, 0, n, 0)
		copy(want, got)
		for end := 1; end < n; end++ {
			clear(got)
			step(p, 0, end, 16)
			step(p, end, n, 16)
			sameBits(t, fmt.Sprint("cut at ", end), got, want)
			step(p, end, n, 0) // the KV before it is that of the whole
			sameBits(t, fmt.Sprint("cached to ", end), got, want)
		}
		plain := p
		plain.positions = nil
		step(plain, 0, n, 16)
		if slices.Equal(got, want) {
			t.Error("positions make no difference")
		}
	})
}

// TestGridsUnderScheduling: an engine gives the recorded answers to prompts with images in
// grids, whatever the room in a step, and whatever is cached or preempted.
func TestGridsUnderScheduling(t *testing.T) {
	if patience.RaceDetector {
		t.Skip(sameGoroutines)
	}
	gridGoldens(t, func(t *testing.T, g golden, r rig, p illustrated) {
		p.media.Embed = func(_ context.Context, parts []blockhash.Media) (rows [][][]float32, err error) {
			for _, part := range parts {
				rows = append(rows, p.rows[part.Start:part.End])
			}
			return rows, nil
		}
		for _, cfg := range []engine.Config{{MaxBatchTokens: 5}, {MaxBatchTokens: 512}, {MaxBatchTokens: 512, NumBlocks: 50}} {
			r := newRig(t, r.weights.model, 2, max(cfg.NumBlocks, 100), Options{BlockSize: 4})
			if cfg.NumBlocks == 0 {
				cfg.NumBlocks = 100
			}
			e := enginetest.Start(t, r.Backend, cfg)
			var streams []*engine.Stream
			for i := range 3 {
				streams = append(streams, enginetest.Submit(t, e, engine.Request{ID: fmt.Sprint(i), Tokens: g.Prompt, Media: p.media, Stop: protocol.StopConditions{MaxTokens: 64}}))
			}
			for i, s := range streams {
				if got := enginetest.Read(t, s); !slices.Equal(got, g.Greedy) {
					t.Errorf("%+v: %d: %v, want %v", cfg, i, got, g.Greedy)
				}
			}
			if st := e.Stats(); cfg.NumBlocks == 50 && st.PreemptedTotal == 0 {
				t.Error("nothing was preempted")
			}
		}
	})
}

// TestGridsText: without images Qwen2-VL computes what Qwen2 does with its weights, bit by bit.
func TestGridsText(t *testing.T) {
	for _, name := range []string{"qwen2-vl", "qwen2.5-vl"} {
		g := readGolden(t, "testdata/families/"+name+".json")
		var logits [2][]float32
		for i := range logits {
			if i == 1 {
				config := map[string]any{}
				if err := json.Unmarshal(g.Config, &config); err != nil {
					t.Fatal(err)
				}
				config["architectures"], config["rope_scaling"] = []string{"Qwen2ForCausalLM"}, nil
				g.Config, _ = json.Marshal(config)
			}
			r := newRig(t, openGolden(t, g), 2, 16, Options{BlockSize: 4})
			logits[i] = r.newLogits()
			r.step(t, engine.BatchSeq{Tokens: g.Prompt, Blocks: table(0, 16), Logits: logits[i]})
		}
		sameBits(t, name, logits[0], logits[1])
	}
}
