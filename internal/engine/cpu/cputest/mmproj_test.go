package cputest

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/media/picture"
	"github.com/dynctl/dynctl/internal/media/prepare"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// TestMmprojSeesAsTheFolder asks about two pictures: a model in GGUF files makes the same bits of
// them as the folder that it was made of, and gives the same answer.
func TestMmprojSeesAsTheFolder(t *testing.T) {
	for family := range modeltest.Vision() {
		t.Run(family, func(t *testing.T) {
			dir := modeltest.Sighted(t, family)
			prompt, rows, answer := describe(t, dir)
			for name, form := range map[string]modeltest.MmprojForm{"new": {}, "old": {Swapped: true}, "merged": {Merged: true}} {
				p, r, a := describe(t, modeltest.VisionGGUF(t, dir, form))
				if !slices.Equal(p, prompt) {
					t.Errorf("%s: the prompt is\n%v\nwant\n%v", name, p, prompt)
				}
				if !slices.EqualFunc(r, rows, func(x, y []float32) bool {
					return slices.EqualFunc(x, y, func(v, w float32) bool { return math.Float32bits(v) == math.Float32bits(w) })
				}) {
					t.Errorf("%s: the rows of the tower are other bits", name)
				}
				if !slices.Equal(a, answer) {
					t.Errorf("%s: the answer is\n%v\nwant\n%v", name, a, answer)
				}
			}
			// What a tower of eight bits changes is small against its rows.
			_, q, _ := describe(t, modeltest.VisionGGUF(t, dir, modeltest.MmprojForm{Vision: gguf.Q8_0}))
			var off, all float64
			for i := range rows {
				for j, v := range rows[i] {
					off += math.Pow(float64(q[i][j]-v), 2)
					all += float64(v) * float64(v)
				}
			}
			if !(off > 0 && off < 1e-2*all) {
				t.Errorf("a tower of eight bits is off by %v of %v", off, all)
			}
		})
	}
}

// describe asks a model about two pictures and returns the prompt, the rows that the pictures
// became, and 64 tokens of the answer.
func describe(t *testing.T, dir string) (prompt []uint32, rows [][]float32, answer []uint32) {
	t.Helper()
	r := New(t, dir, cpu.Options{KVDType: cpu.KVF32})
	files := chat.Files{}
	for _, f := range r.Model.Files() {
		files[f.Name] = f.Data
	}
	text, err := chat.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	proc, err := prepare.Load(prepare.Files{Preprocessor: files[model.PreprocessorName], Config: files[model.ConfigName]})
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := text.RenderChat(t.Context(), []json.RawMessage{json.RawMessage(
		`{"role":"user","content":[{"type":"image"},{"type":"text","text":" and "},{"type":"image"},{"type":"text","text":"?"}]}`)}, nil, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	var grids []engine.Grid
	for _, size := range [][2]int{{150, 90}, {70, 110}} {
		img := &picture.Image{W: size[0], H: size[1]}
		for range 3 * size[0] * size[1] {
			img.Pix = append(img.Pix, byte(rng.Uint32()))
		}
		in, err := proc.Prepare(img)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, see(t, r, proc, in)...)
		if in.Patches != nil {
			grids = append(grids, engine.Grid{T: in.Places[0], H: in.Places[1], W: in.Places[2]})
		}
		rendered = strings.Replace(rendered, proc.Placeholder(), strings.ReplaceAll(in.Text, proc.Placeholder(), "\x00"), 1)
	}
	prompt = text.EncodeChat(strings.ReplaceAll(rendered, "\x00", proc.Placeholder()))
	seq := engine.BatchSeq{Tokens: prompt, Rows: make([][]float32, len(prompt))}
	var parts []blockhash.Media
	left, v := rows, r.Model.Config().Vision
	for i, id := range prompt {
		if id != v.ImageToken {
			continue
		}
		if i == 0 || prompt[i-1] != v.ImageToken {
			parts = append(parts, blockhash.Media{Start: i})
		}
		parts[len(parts)-1].End = i + 1
		seq.Rows[i], left = left[0], left[1:]
	}
	if len(left) > 0 || len(parts) < 2 {
		t.Fatalf("%d rows are left, %d pictures", len(left), len(parts))
	}
	seq.Positions = engine.NewPositions(parts, grids)
	if v.Mutual {
		for _, p := range parts {
			seq.Mutual = append(seq.Mutual, engine.Span{Start: p.Start, End: p.End})
		}
	}
	return prompt, rows, r.GreedySeq(seq, 64)
}

// see returns the rows of a prepared picture in the order of its prompt.
func see(t *testing.T, r *Runner, proc *prepare.Processor, in *prepare.Input) [][]float32 {
	t.Helper()
	if in.Patches != nil {
		return r.Encode(engine.View{W: in.W, H: in.H, Patches: in.Patches})
	}
	var views []engine.View
	for _, v := range in.Views {
		views = append(views, engine.View{W: v.W, H: v.H, Pixels: v.Pixels})
	}
	var newline []float32
	if t, ok := r.Model.Weight(model.RoleNewline, 0); ok {
		newline = modeltest.Floats(r.t, t)
	}
	rows, err := proc.Arrange(in.Plan, r.Encode(views...), newline)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}
