package gpu

import (
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// span is a run of rows or columns of a matrix.
type span struct{ from, n int }

// shareOf returns a rank's share of total values that are divided in whole pieces, as
// evenly as possible.
func shareOf(total, piece, rank, ranks int) span {
	pieces := total / piece
	from, to := pieces*rank/ranks*piece, pieces*(rank+1)/ranks*piece
	return span{from, to - from}
}

// sharing says which part of a matrix each rank has: rows, or columns, in whole pieces.
// The zero value gives the whole matrix to every rank.
type sharing struct {
	piece   int
	columns bool
}

// of returns a rank's part of a tensor with the given rows and columns.
func (c sharing) of(rows, columns, rank, ranks int) (ownRows, ownColumns span) {
	ownRows, ownColumns = span{0, rows}, span{0, columns}
	switch {
	case c.piece == 0 || ranks == 1:
	case c.columns:
		ownColumns = shareOf(columns, c.piece, rank, ranks)
	default:
		ownRows = shareOf(rows, c.piece, rank, ranks)
	}
	return ownRows, ownColumns
}

// headPiece is the number of rows of the output head that stay together, so that each
// rank's logits begin at a multiple of 16 bytes.
const headPiece = 4

// vocabShare returns a rank's part of the vocabulary. If the vocabulary does not divide
// into pieces, the first rank has all of it.
func vocabShare(vocab, rank, ranks int) span {
	switch {
	case vocab%headPiece == 0:
		return shareOf(vocab, headPiece, rank, ranks)
	case rank == 0:
		return span{0, vocab}
	}
	return span{}
}

// innerPiece returns how many values of an MLP stay together. They are columns of its
// down matrix and must be whole blocks of weights.
func innerPiece(down model.Tensor) int {
	switch down.DType {
	case safetensors.Q8_0:
		return kernels.Q8_0.Columns()
	case safetensors.F8_E4M3:
		columns := down.Shape[len(down.Shape)-1]
		if down.Scales.Across > 1 && columns%kernels.E4M3Columns == 0 {
			return kernels.E4M3Columns
		}
		if piece := kernels.E4M3.Columns(); columns%piece == 0 {
			return piece
		}
	}
	return kernels.BF16.Columns()
}
