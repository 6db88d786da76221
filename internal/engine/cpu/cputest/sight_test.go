package cputest

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/media/picture"
	"github.com/dynctl/dynctl/internal/media/prepare"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/recall/drawn"
)

// sighted is the built-in vision model with what its prompts and pictures need.
type sighted struct {
	*Runner
	pictures *prepare.Processor
	text     *chat.Processor
}

func newSighted(t *testing.T) sighted {
	t.Helper()
	dir, err := model.BuiltinVision.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := sighted{Runner: New(t, dir, cpu.Options{})}
	files := chat.Files{}
	for _, f := range s.Model.Files() {
		files[f.Name] = f.Data
	}
	if s.text, err = chat.Load(files); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(dir, model.ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	if s.pictures, err = prepare.Load(prepare.Files{Preprocessor: files[model.PreprocessorName], Config: config}); err != nil {
		t.Fatal(err)
	}
	return s
}

// prompt is the question about one picture.
func (s sighted) prompt(t *testing.T, plan prepare.Plan, question string) []uint32 {
	t.Helper()
	message, err := json.Marshal(map[string]any{"role": "user", "content": []any{map[string]any{"type": "image"}, map[string]any{"type": "text", "text": question}}})
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := s.text.RenderChat(t.Context(), []json.RawMessage{message}, nil, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	return s.text.EncodeChat(strings.Replace(rendered, s.pictures.Placeholder(), plan.Text, 1))
}

// look prepares a picture as it comes out of its file, and puts its embeddings into a
// prompt.
func (s sighted) look(t *testing.T, p drawn.Picture, question string) (prompt []uint32, rows [][]float32) {
	t.Helper()
	img, err := picture.Decode(p.PNG(), s.pictures.DecodeOptions())
	if err != nil {
		t.Fatal(err)
	}
	in, err := s.pictures.Prepare(img)
	if err != nil {
		t.Fatal(err)
	}
	prompt = s.prompt(t, in.Plan, question)
	rows = make([][]float32, len(prompt))
	got := s.Encode(engine.View{W: in.Views[0].W, H: in.Views[0].H, Pixels: in.Views[0].Pixels})
	for i, id := range prompt {
		if id == s.Model.Config().Vision.ImageToken {
			rows[i], got = got[0], got[1:]
		}
	}
	if len(got) > 0 {
		t.Fatalf("%d embeddings have no place in the prompt", len(got))
	}
	return prompt, rows
}

// TestBuiltinSeesAsPyTorch compares prompts and greedy answers about drawn pictures with
// those that scripts/demo-model/golden_vision.py recorded with PyTorch: drawing, preparation,
// tower, projector and text model agree with another implementation on every token.
func TestBuiltinSeesAsPyTorch(t *testing.T) {
	var records []struct {
		Kind           drawn.Kind
		Seed, Number   uint64
		Question, Text string
		Prompt, Answer []uint32
	}
	raw, err := os.ReadFile("testdata/builtin-vision.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &records); err != nil {
		t.Fatal(err)
	}
	s := newSighted(t)
	kinds := map[drawn.Kind]int{}
	for i, rec := range records {
		prompt, rows := s.look(t, drawn.Draw(rand.New(rand.NewPCG(rec.Seed, rec.Number)), rec.Kind), rec.Question)
		if !slices.Equal(prompt, rec.Prompt) {
			t.Errorf("%d: the prompt is\n%v\nwant\n%v", i, prompt, rec.Prompt)
			continue
		}
		if got := s.GreedyRows(prompt, rows, len(rec.Answer)); !slices.Equal(got, rec.Answer) {
			t.Errorf("%d, %q: got\n%v\nwant\n%v", i, rec.Text, got, rec.Answer)
		}
		kinds[rec.Kind] += len(rec.Answer)
	}
	for _, k := range drawn.Kinds {
		if kinds[k] < 30 {
			t.Errorf("%d tokens of answers about pictures of kind %s: run scripts/demo-model/golden_vision.py", kinds[k], k)
		}
	}
}

// The codes on doors are read out of the embeddings: with others in their place, or with
// their signs turned, the answer is wrong.
func TestBuiltinReadsCodes(t *testing.T) {
	s := newSighted(t)
	const pictures = 40
	right, damaged, swapped := 0, 0, 0
	var before [][]float32
	for n := range uint64(pictures) {
		p := drawn.Draw(rand.New(rand.NewPCG(31, n)), drawn.Code)
		ask, _ := p.Ask("code")
		prompt, rows := s.look(t, p, ask.Text())
		said := func(rows [][]float32) bool { return ask.Right(s.text.Decode(s.GreedyRows(prompt, rows, 20))) }
		if said(rows) {
			right++
		}
		if before != nil && said(before) {
			swapped++
		}
		before = rows
		turned := make([][]float32, len(rows))
		for i, row := range rows {
			for _, v := range row {
				turned[i] = append(turned[i], -v)
			}
		}
		if said(turned) {
			damaged++
		}
	}
	t.Logf("%d of %d codes read, %d with damaged embeddings, %d with those of another picture", right, pictures, damaged, swapped)
	if right < pictures*90/100 || damaged > 0 || swapped > 0 {
		t.Errorf("%d of %d codes read, %d with damaged embeddings, %d with those of another picture", right, pictures, damaged, swapped)
	}
}
