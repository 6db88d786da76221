package cpu

import "github.com/dynctl/dynctl/internal/engine/cpu/kernel"

// form is a set of encodings of activations that products read beside float32. The
// matrices that multiply a row determine the forms it needs, see matrix.form.
type form uint8

const (
	// int8Form stands for blocks of int8 with a scale each, for quantized weights.
	int8Form form = 1 << iota
	// bf16Form stands for values rounded to bf16, for weights of bf16.
	bf16Form
)

// forms holds the forms of the inputs of a layer's products. The union over all layers
// determines the memory of a pass.
type forms struct {
	attn form // normalized, for q, k and v
	out  form // attention's output
	mlp  form // normalized, for gate and up, router and experts
	down form // gate · up
}

func (f *forms) add(g forms) {
	f.attn, f.out, f.mlp, f.down = f.attn|g.attn, f.out|g.out, f.mlp|g.mlp, f.down|g.down
}

// activations are the inputs of products, one row per token, with the other forms of each
// row. A row is prepared once, after it was written and before any product reads it. The
// item that writes a whole row prepares it; otherwise a task of its own does
// (step.prepare).
type activations struct {
	form   form             // forms that prepare makes
	rows   [][]float32      // [token][cols]
	blocks [][]kernel.Block // [token][cols / 32] of int8Form
	halves [][]uint16       // [token][cols and padding] of bf16Form
}

// reserve makes room for n rows and for the forms f, which any layer may need.
func (a *activations) reserve(n, cols, limit int, f form) {
	a.rows = reserveRows(a.rows, n, cols, limit)
	if f&int8Form != 0 {
		blocks := cols / kernel.BlockSize
		a.blocks = reserveApart(a.blocks, n, blocks, blockStride(blocks), limit)
	}
	if f&bf16Form != 0 {
		a.halves = reserveHalves(a.halves, n, cols, limit)
	}
}

// prepare makes the other forms of rows [from, to).
func (a *activations) prepare(level kernel.Level, from, to int) {
	if a.form&int8Form != 0 {
		for t := from; t < to; t++ {
			level.Quantize(a.blocks[t], a.rows[t])
		}
	}
	if a.form&bf16Form != 0 {
		for t := from; t < to; t++ {
			level.PrepareBF16(a.halves[t], a.rows[t])
		}
	}
}

// span returns the activations of tokens [from, to).
func (a *activations) span(from, to int) activations {
	s := activations{form: a.form, rows: a.rows[from:to]}
	if a.form&int8Form != 0 {
		s.blocks = a.blocks[from:to]
	}
	if a.form&bf16Form != 0 {
		s.halves = a.halves[from:to]
	}
	return s
}

// refer makes row i an alias of a row of another set, with all of its forms.
func (a *activations) refer(i int, b *activations, row int) {
	a.rows[i] = b.rows[row]
	if b.form&int8Form != 0 {
		a.blocks[i] = b.blocks[row]
	}
	if b.form&bf16Form != 0 {
		a.halves[i] = b.halves[row]
	}
}

// prepareValues is about how many values one item of a preparing task takes: some
// microseconds.
const prepareValues = 16 << 10

// prepareRows returns how many rows one item of the task takes.
func (a *activations) prepareRows() int { return max(1, prepareValues/len(a.rows[0])) }

// prepare makes the forms that readers need of rows that several items wrote together. It
// costs nothing if they need only float32.
func (s *step) prepare(a *activations, f form) error {
	a.form = f
	if f == 0 || len(a.rows) == 0 {
		return nil
	}
	s.preparing = a
	rows := a.prepareRows()
	return s.do(&s.prepareTask, (len(a.rows)+rows-1)/rows)
}

func (s *step) prepareItem(l *lane, item int) {
	a := s.preparing
	rows := a.prepareRows()
	a.prepare(s.b.device.level, item*rows, min((item+1)*rows, len(a.rows)))
}
