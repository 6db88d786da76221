package tensorfile

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// Rows limits.
const (
	maxRows  = 1 << 17
	maxWidth = 1 << 16
)

// Rows reads a file of embeddings and returns how many rows of how many values it has. A
// tensor of three dimensions has its images one after the other.
func Rows(data []byte) (rows, width int, err error) {
	f, err := Read(data, Limits{Bytes: len(data)})
	if err != nil {
		return 0, 0, err
	}
	return f.rows()
}

func (f *File) rows() (rows, width int, err error) {
	t := &f.Embeddings
	n := len(t.Shape)
	if n != 2 && n != 3 {
		return 0, 0, fmt.Errorf("%w: the embeddings have the shape %v, expected rows and values", ErrFormat, t.Shape)
	}
	switch t.DType {
	case safetensors.F32, safetensors.F16, safetensors.BF16:
	default:
		return 0, 0, fmt.Errorf("%w: embeddings of type %s, known are F32, F16, BF16", ErrUnsupported, t.DType)
	}
	rows, width = t.Shape[n-2], t.Shape[n-1]
	if n == 3 {
		rows *= t.Shape[0]
	}
	if rows < 1 || rows > maxRows || width < 1 || width > maxWidth {
		return 0, 0, fmt.Errorf("%w: embeddings of the shape %v", ErrFormat, t.Shape)
	}
	return rows, width, nil
}

// GridName is the key of the grid of patches in a dictionary: frames, rows and columns.
const GridName = "image_grid_thw"

// Grid reads the grid of patches that embeddings were computed from: three whole numbers under
// GridName. ok is false for a file without any.
func Grid(data []byte) (grid [3]int, ok bool, err error) {
	f, err := Read(data, Limits{Bytes: len(data)})
	if err != nil {
		return grid, false, err
	}
	for _, t := range f.Auxiliary {
		if t.Name != GridName {
			continue
		}
		size := map[safetensors.DType]int{"I64": 8, "I32": 4}[t.DType]
		if size == 0 || len(t.Data) != len(grid)*size {
			return grid, false, fmt.Errorf("%w: %s has the type %s and the shape %v, want three whole numbers", ErrFormat, GridName, t.DType, t.Shape)
		}
		for i := range grid {
			n := int64(int32(binary.LittleEndian.Uint32(t.Data[size*i:])))
			if size == 8 {
				n = int64(binary.LittleEndian.Uint64(t.Data[size*i:]))
			}
			if n < 1 || n > maxRows {
				return grid, false, fmt.Errorf("%w: %s has %d", ErrFormat, GridName, n)
			}
			grid[i] = int(n)
		}
		return grid, true, nil
	}
	return grid, false, nil
}

// Embeddings reads a file of embeddings as rows of float32, which hold the values of all
// types exactly. They are finite.
func Embeddings(data []byte) ([][]float32, error) {
	f, err := Read(data, Limits{Bytes: len(data)})
	if err != nil {
		return nil, err
	}
	n, width, err := f.rows()
	if err == nil {
		err = f.Embeddings.CheckFinite()
	}
	if err != nil {
		return nil, err
	}
	values := make([]float32, n*width)
	b := f.Embeddings.Data
	for i := range values {
		switch f.Embeddings.DType {
		case safetensors.F32:
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		case safetensors.F16:
			values[i] = safetensors.FromF16(binary.LittleEndian.Uint16(b[2*i:]))
		default:
			values[i] = safetensors.FromBF16(binary.LittleEndian.Uint16(b[2*i:]))
		}
	}
	rows := make([][]float32, n)
	for i := range rows {
		rows[i] = values[i*width:][:width:width]
	}
	return rows, nil
}
