package prepare

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/media/picture"
)

// Plan is what becomes of a picture of some size.
type Plan struct {
	Tokens int    // embeddings that the vision tower makes: how often the image token is in Text
	Text   string // replaces the placeholder in the prompt
	Views  int    // pictures that the vision tower computes; 0 where it takes patches
	W, H   int    // pixels of each view, or of the picture that patches are cut from
	Grid   Grid
	// Places are the frames, rows and columns in which the tokens stand, for a model that
	// places them so: Qwen-VL. They are zero for others.
	Places [3]int
}

// Grid is how a picture is cut. What it counts depends on the family: patches of
// Qwen-VL, whose T is 1; rows and columns of tiles of SmolVLM, Idefics3 and LLaVA-1.6,
// whose T is 0. It is zero for a picture that is not cut.
type Grid struct {
	T, H, W int
	// UnpaddedH and UnpaddedW are the rows and columns of features that LLaVA-1.6 keeps of
	// the tiles; the others come from padding.
	UnpaddedH, UnpaddedW int
}

// View is a picture for the vision tower: planes of red, green and blue, row by row. All
// views of a picture have one size, so there is no mask of pixels: that of transformers,
// where it gives one, is 1 everywhere. Padding of LLaVA is black.
type View struct {
	W, H     int
	Row, Col int // of a tile, from 1; 0 for the whole picture
	Pixels   []float32
}

// Input is a prepared picture.
type Input struct {
	Plan
	// Views are in the order of Text: tiles row by row and then the whole for SmolVLM and
	// Idefics3, the whole and then tiles for LLaVA-1.6, else the whole alone.
	Views []View
	// Patches are those of Qwen-VL, PatchSize numbers each: color, time, row, column.
	// Patches that are merged into one token follow each other.
	Patches   []float32
	PatchSize int
}

// Bounds of one prepared picture, which bound its memory: 768 MiB of numbers, and twice as
// much for Qwen-VL.
const (
	maxTokens = 1 << 17
	maxPixels = 1 << 26
)

// Plan says what becomes of a picture of this size, in pixels. An error matches
// ErrPicture.
func (p *Processor) Plan(w, h int) (Plan, error) {
	if w < 1 || h < 1 || w > 1<<20 || h > 1<<20 {
		return Plan{}, fmt.Errorf("plan image: %w: %d x %d pixels", ErrPicture, w, h)
	}
	plan, err := p.family.plan(w, h)
	if err != nil {
		return Plan{}, fmt.Errorf("plan image of %d x %d pixels: %w", w, h, err)
	}
	if plan.Tokens > maxTokens || max(plan.Views, 1)*plan.W*plan.H > maxPixels {
		return Plan{}, fmt.Errorf("plan image of %d x %d pixels: %w: %d tokens and %d views of %d x %d pixels, the limits are %d tokens and %d pixels",
			w, h, ErrPicture, plan.Tokens, plan.Views, plan.W, plan.H, maxTokens, maxPixels)
	}
	plan.Text = p.family.text(plan)
	return plan, nil
}

// Cuts returns how pictures are cut into patches: pixels of a side, frames, and patches of a
// side of those that become one token; zero where views are cut.
func (p *Processor) Cuts() (patch, frames, merge int) { return p.family.cuts() }

// Prepare computes the input of the vision tower. Its plan is that of Plan. An error
// matches ErrPicture.
func (p *Processor) Prepare(m *picture.Image) (*Input, error) {
	plan, err := p.Plan(m.W, m.H)
	if err != nil {
		return nil, err
	}
	in := &Input{Plan: plan}
	if err := p.family.prepare(m, in); err != nil {
		return nil, fmt.Errorf("prepare image of %d x %d pixels: %w", m.W, m.H, err)
	}
	return in, nil
}

// Arrange puts the rows that the vision tower made of the views of a picture into the order
// in which they stand in the prompt. newline is the row that ends the lines of LLaVA-1.6. An
// error says that the tower made other rows than the plan has.
func (p *Processor) Arrange(plan Plan, rows [][]float32, newline []float32) ([][]float32, error) {
	rows, err := p.family.arrange(plan, rows, newline)
	if err != nil {
		return nil, fmt.Errorf("arrange rows of an image: %w", err)
	}
	if len(rows) != plan.Tokens {
		return nil, fmt.Errorf("arrange rows of an image: there are others than the %d of its plan", plan.Tokens)
	}
	return rows, nil
}

// colors turns bytes into numbers, for each color.
type colors [3][256]float32

// colors computes the table. Factor and byte are multiplied in 64 bits and rounded to
// 32, mean and deviation are of 32 bits, as in transformers.
func (f fields) colors() *colors {
	scale := f.positive("rescale_factor")
	if !f.boolean("do_rescale") {
		scale = 1
	}
	mean, std := f.triple("image_mean"), f.triple("image_std")
	if !f.boolean("do_normalize") {
		mean, std = [3]float64{}, [3]float64{1, 1, 1}
	}
	var table colors
	for c := range table {
		if float32(std[c]) == 0 {
			f.fail("image_std", ErrConfig, "0 divides")
		}
		for v := range table[c] {
			table[c][v] = (float32(float64(v)*scale) - float32(mean[c])) / float32(std[c])
		}
	}
	return &table
}

// view converts a picture.
func (c *colors) view(m *picture.Image) View {
	n := m.W * m.H
	v := View{W: m.W, H: m.H, Pixels: make([]float32, 3*n)}
	for i := range 3 {
		table, plane := &c[i], v.Pixels[i*n:(i+1)*n]
		for j := range plane {
			plane[j] = table[m.Pix[3*j+i]]
		}
	}
	return v
}
