package cpu

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/media/prepare"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/safetensors"
	"github.com/dynctl/dynctl/internal/patience"
)

// golden is a file of testdata/families: what the PyTorch reference of
// scripts/reference computed for a checkpoint whose weights follow from a seed.
type golden struct {
	Seed          uint64
	Config        json.RawMessage
	ServedContext int            `json:"served_context"` // 0: the model's
	Tensors       []goldenTensor // as the published files call them
	Prompt        []uint32       //
	Logits        []byte         // [position][vocabulary] in float32, little-endian
	Greedy        []uint32       // what follows the prompt
	Logprobs      []float64      // of these
	Views         []goldenView   // of a family that reads images
	Images        []int          // where the rows of each image stand in the prompt; nil: nowhere
	Sizes         [][2]int       // of images that are cut into tiles, width and height; nil: a view is an image
}

// goldenTensor is [name, shape, mean, width].
type goldenTensor struct {
	name        string
	shape       []int
	mean, width float64
	factor      float64 // of all values, 0 for 1
}

func (g *goldenTensor) UnmarshalJSON(raw []byte) error {
	return json.Unmarshal(raw, &[]any{&g.name, &g.shape, &g.mean, &g.width})
}

// values are the elements of a tensor; scripts/reference/weights.py has the rule.
func (g goldenTensor) values(seed uint64) []float32 {
	const gamma = 0x9E3779B97F4A7C15
	name := fnv.New64a()
	name.Write([]byte(g.name))
	state := seed*gamma + name.Sum64()
	n := 1
	for _, d := range g.shape {
		n *= d
	}
	step, out := float32(g.width/32768), make([]float32, n)
	for i := range out {
		state += gamma
		z := (state ^ state>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		z ^= z >> 31
		u := float32(int64(z>>48) - 32768)
		out[i] = float32(g.mean) + float32(u*step)
		if g.factor != 0 {
			out[i] *= float32(g.factor)
		}
	}
	return out
}

// write makes the checkpoint.
func (g golden) write(t *testing.T) string {
	t.Helper()
	var config struct {
		DType string `json:"torch_dtype"`
	}
	if err := json.Unmarshal(g.Config, &config); err != nil {
		t.Fatal(err)
	}
	dtype := map[string]safetensors.DType{"float32": safetensors.F32, "bfloat16": safetensors.BF16, "float16": safetensors.F16}[config.DType]
	var layout safetensors.Layout
	var data []byte
	for _, tensor := range g.Tensors {
		if _, err := layout.Add(tensor.name, dtype, tensor.shape...); err != nil {
			t.Fatal(err)
		}
		for _, v := range tensor.values(g.Seed) {
			data = appendAs(data, v, dtype)
		}
	}
	dir := t.TempDir()
	for name, content := range map[string][]byte{"config.json": g.Config, safetensors.SingleName: append(layout.Header(nil), data...)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// appendAs stores a value in a type, rounded to nearest even.
func appendAs(out []byte, v float32, dtype safetensors.DType) []byte {
	bits := math.Float32bits(v)
	switch dtype {
	case safetensors.BF16:
		h := safetensors.ToBF16(v)
		return append(out, byte(h), byte(h>>8))
	case safetensors.F16:
		// A multiple of the last place: 2^-24, and from 2^-14 on 2^-11 of the
		// next power of two.
		abs := math.Abs(float64(v))
		_, exp := math.Frexp(max(abs, 0x1p-14))
		h := uint16(math.RoundToEven(math.Ldexp(abs, 11-exp))) + uint16(exp+13)<<10
		h |= uint16(bits >> 16 & 0x8000)
		return append(out, byte(h), byte(h>>8))
	}
	return append(out, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
}

func readGolden(t *testing.T, path string) golden {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestFamilies compares every family with a plain PyTorch implementation of it:
// logits after each token of a prompt, and 64 greedy tokens with their log
// probabilities. Both compute in float32, from weights with the same rounding.
func TestFamilies(t *testing.T) {
	if patience.RaceDetector {
		t.Skip(sameGoroutines)
	}
	paths, err := filepath.Glob("testdata/families/*.json")
	if err != nil || len(paths) < 20 {
		t.Fatalf("%d recorded checkpoints, %v", len(paths), err)
	}
	seen := make(map[string]bool)
	for _, path := range paths {
		g := readGolden(t, path)
		m, err := model.Open(g.write(t), model.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		seen[m.Config().Family] = true
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
			t.Parallel()
			p := illustrated{tokens: g.Prompt, rows: make([][]float32, len(g.Prompt))}
			if g.Images != nil {
				p = g.illustrated(t, newEncoder(t, newTestDevice(t, 2), m))
			}
			testGolden(t, g, m, p)
		})
	}
	for _, family := range model.Families() {
		if !seen[family] {
			t.Errorf("family %s has no recorded results", family)
		}
	}
}

// illustrated is the prompt with the rows that an encoder makes of its images.
func (g golden) illustrated(t *testing.T, e *Encoder) illustrated {
	p := illustrated{tokens: g.Prompt, rows: make([][]float32, len(g.Prompt))}
	views := g.views()
	for i, start := range g.Images {
		v := views[0]
		var rows [][]float32
		rows, views = g.image(t, e, i, views)
		copy(p.rows[start:], rows)
		span := engine.Span{Start: start, End: start + len(rows)}
		p.media.Parts = append(p.media.Parts, blockhash.Media{Start: span.Start, End: span.End, Key: blockhash.Key{byte(i + 1)}})
		if e.tower.Mutual {
			p.runs = append(p.runs, span)
		}
		if e.tower.Grid {
			square := e.tower.PatchSize * e.tower.Projector.Factor
			p.media.Grids = append(p.media.Grids, engine.Grid{T: 1, H: v.H / square, W: v.W / square})
		}
	}
	p.positions = engine.NewPositions(p.media.Parts, p.media.Grids)
	return p
}

// image makes the rows of the i-th image, and returns the views behind its own.
func (g golden) image(t *testing.T, e *Encoder, i int, views []engine.View) ([][]float32, []engine.View) {
	t.Helper()
	n, plan := 1, prepare.Plan{}
	var proc *prepare.Processor
	if g.Sizes != nil {
		var config struct {
			Grid   json.RawMessage `json:"image_grid_pinpoints"`
			Vision struct {
				Side int `json:"image_size"`
			} `json:"vision_config"`
		}
		err := json.Unmarshal(g.Config, &config)
		if err == nil {
			settings := fmt.Sprintf(`{"image_grid_pinpoints": %s, "size": %[2]d, "crop_size": %[2]d}`, config.Grid, config.Vision.Side)
			proc, err = prepare.Load(prepare.Files{Preprocessor: []byte(settings), Config: g.Config})
		}
		if err == nil {
			plan, err = proc.Plan(g.Sizes[i][0], g.Sizes[i][1])
		}
		if err != nil {
			t.Fatal(err)
		}
		n = plan.Views
	}
	rows, err := e.Encode(t.Context(), views[:n])
	if err == nil && proc != nil {
		rows, err = proc.Arrange(plan, rows, e.Newline())
	}
	if err != nil {
		t.Fatal(err)
	}
	return rows, views[n:]
}

func testGolden(t *testing.T, g golden, m *model.Model, p illustrated) {
	r := newRig(t, m, 2, 16, Options{BlockSize: 8, MaxContext: g.ServedContext})
	vocab := r.Info().VocabSize
	want := floats(g.Logits)
	if len(want) != len(g.Prompt)*vocab || len(g.Greedy) != 64 || len(g.Logprobs) != 64 {
		t.Fatalf("%d logits, %d tokens", len(want), len(g.Greedy))
	}
	// Logits of every position, each made in one prefill step.
	top, worst, logits := 0.0, 0.0, r.newLogits()
	for n := range g.Prompt {
		if _, cut := p.cut(n + 1); cut {
			continue
		}
		e := p.entry(0, n+1)
		e.Blocks, e.Logits = table(0, 16), logits
		r.step(t, e)
		for v, l := range logits {
			w := float64(want[n*vocab+v])
			top, worst = max(top, math.Abs(w)), max(worst, math.Abs(float64(l)-w))
		}
	}
	t.Logf("largest difference of a logit %.1e of the largest logit", worst/top)
	if !(worst < 1e-4*top) {
		t.Errorf("largest difference of a logit %v, want below 1e-4 of %v", worst, top)
	}
	// Greedy tokens, one decode step for each.
	var got []uint32
	worst = 0
	for i := range g.Greedy {
		best := uint32(slices.Index(logits, slices.Max(logits)))
		worst = max(worst, math.Abs(math.Log(probabilities(logits)[best])-g.Logprobs[i]))
		got = append(got, best)
		r.step(t, engine.BatchSeq{Tokens: got[i:], Start: len(g.Prompt) + i, Positions: p.positions, Blocks: table(0, 16), Logits: logits})
	}
	if !slices.Equal(got, g.Greedy) {
		t.Errorf("tokens %v, want %v", got, g.Greedy)
	}
	if !(worst < 1e-3) {
		t.Errorf("largest difference of a log probability %v, want below 1e-3", worst)
	}
}
