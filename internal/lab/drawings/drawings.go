// Package drawings writes drawn pictures with what is to be known of them for the trainer
// of the built-in vision model, prepared as the product prepares them, and as PNG files.
//
// Start with [Plan].
package drawings

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/dynctl/dynctl/internal/media/picture"
	"github.com/dynctl/dynctl/internal/media/prepare"
	"github.com/dynctl/dynctl/internal/recall/drawn"
)

// Plan says what to draw.
type Plan struct {
	Model string         // folder with config.json and preprocessor_config.json
	Seed  uint64         // of the random generators, one for each picture
	Count int            // of pictures; 0 goes on until the reader leaves
	Held  bool           // ask in the ways that are held out of the training
	Kinds map[string]int // share of each kind
	Dir   string         // write PNG files to this folder instead of prepared views
}

// Run writes a line of JSON that names the facts and the pixels of a side of a view, and
// then, for each picture, another one and the bytes of the view: red, green, blue, row by
// row.
func (s *Plan) Run(stdout io.Writer) error {
	var files prepare.Files
	var err error
	if files.Preprocessor, err = os.ReadFile(filepath.Join(s.Model, "preprocessor_config.json")); err != nil {
		return err
	}
	if files.Config, err = os.ReadFile(filepath.Join(s.Model, "config.json")); err != nil {
		return err
	}
	processor, err := prepare.Load(files)
	if err != nil {
		return err
	}
	var kinds []drawn.Kind
	known := append(slices.Clone(drawn.Kinds), drawn.Digits)
	for name, share := range s.Kinds {
		if !slices.Contains(known, drawn.Kind(name)) || share < 0 {
			return fmt.Errorf("kinds: %s=%d: known are %v, with a share from 0 on", name, share, known)
		}
	}
	for _, k := range known {
		for range s.Kinds[string(k)] {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) == 0 {
		return fmt.Errorf("no kind is asked for: known are %v", known)
	}
	plan, err := processor.Plan(100, 100)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(stdout, 1<<20)
	facts := drawn.FactSizes()
	if err := json.NewEncoder(out).Encode(map[string]any{"side": plan.W, "facts": facts}); err != nil {
		return err
	}
	for i := 0; s.Count == 0 || i < s.Count; i++ {
		r := rand.New(rand.NewPCG(s.Seed, uint64(i)))
		kind := kinds[rand.New(rand.NewPCG(^s.Seed, uint64(i))).IntN(len(kinds))]
		p := drawn.Draw(r, kind) // so that seed, number and kind are all that a test needs
		var view []byte
		if s.Dir == "" {
			if view, err = prepared(processor, p); err != nil {
				return err
			}
		} else if err := s.file(i, p); err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(s.describe(r, p, facts)); err != nil {
			return err
		}
		if _, err := out.Write(view); err != nil {
			return err
		}
	}
	return out.Flush()
}

type record struct {
	Kind    drawn.Kind  `json:"kind"`
	Facts   []int       `json:"facts"`
	Objects [][]float64 `json:"objects"`
	Asks    [][4]string `json:"asks"`
}

// describe says what is to be known of a picture.
func (s *Plan) describe(r *rand.Rand, p drawn.Picture, facts []drawn.Fact) record {
	rec := record{Kind: p.Kind}
	for _, f := range facts {
		v, ok := p.Facts[f.Name]
		if !ok {
			v = -1
		}
		rec.Facts = append(rec.Facts, v)
	}
	w, h := float64(p.Image.Rect.Dx()), float64(p.Image.Rect.Dy())
	for _, o := range p.Objects {
		rec.Objects = append(rec.Objects, []float64{float64(o.Class), float64(o.Color), float64(o.Place),
			float64(o.Box.Min.X) / w, float64(o.Box.Min.Y) / h, float64(o.Box.Max.X) / w, float64(o.Box.Max.Y) / h})
	}
	for _, a := range p.Asks {
		ways := a.Ways
		if s.Held {
			ways = a.Held
		}
		rec.Asks = append(rec.Asks, [4]string{a.Topic, ways[r.IntN(len(ways))], a.Answer, a.Key})
	}
	return rec
}

// prepared returns the bytes of the view that a vision tower gets.
func prepared(processor *prepare.Processor, p drawn.Picture) ([]byte, error) {
	m := picture.New(p.Image.Rect.Dx(), p.Image.Rect.Dy())
	for i := range m.W * m.H {
		copy(m.Pix[3*i:3*i+3], p.Image.Pix[4*i:])
	}
	in, err := processor.Prepare(m)
	if err != nil {
		return nil, err
	}
	if len(in.Views) != 1 {
		return nil, fmt.Errorf("want one view of a picture, not %d", len(in.Views))
	}
	view := in.Views[0]
	n := view.W * view.H
	out := make([]byte, 3*n)
	for c := range 3 {
		for i := range n {
			out[3*i+c] = byte(math.Round(float64(view.Pixels[c*n+i]+1) * 127.5))
		}
	}
	return out, nil
}

func (s *Plan) file(i int, p drawn.Picture) error {
	return os.WriteFile(filepath.Join(s.Dir, fmt.Sprintf("%04d-%s.png", i, p.Kind)), p.PNG(), 0o644)
}
