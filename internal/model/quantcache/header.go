package quantcache

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/bits"
	"slices"

	"github.com/dynctl/dynctl/internal/model/safetensors"
)

var (
	// ErrDamaged is returned for files that are cut, changed or no such files at all.
	ErrDamaged = errors.New("damaged file of quantized weights")
	// ErrOther is returned for files that hold other weights than are asked for, or
	// hold them in the layout of another version.
	ErrOther = errors.New("file holds other quantized weights")
)

// Contents says what a file holds.
type Contents struct {
	Source  string   `json:"source"` // digest of the checkpoint
	Format  string   `json:"format"`
	Files   []Origin `json:"files"` // of the checkpoint
	Tensors []Tensor `json:"tensors"`
}

// Origin is a weight file of a checkpoint, as it was when it was quantized. The digest
// of a checkpoint covers the ends of its files only; these tell the rest.
type Origin struct {
	Name     string `json:"name"`
	Size     int64  `json:"size"`     // bytes
	Modified int64  `json:"modified"` // nanoseconds since 1970
}

// Tensor describes a quantized tensor.
type Tensor struct {
	Name  string            `json:"name"`
	DType safetensors.DType `json:"dtype"`
	Shape []int             `json:"shape"` // rows are counted over all dimensions but the last
}

// same reports whether a file that holds c is one that holds want.
func (c Contents) same(want Contents) bool {
	return c.Source == want.Source && c.Format == want.Format && slices.Equal(c.Files, want.Files) &&
		slices.EqualFunc(c.Tensors, want.Tensors, func(a, b Tensor) bool {
			return a.Name == b.Name && a.DType == b.DType && slices.Equal(a.Shape, b.Shape)
		})
}

const (
	magic    = "dynq\r\n\x1a\n"
	version  = 1
	preamble = 40 // bytes before the table

	pieceBytes = 1 << 20
	tensorStep = 64        // tensors begin at multiples of this
	pageStep   = 4096      // the data begins at a multiple of this
	maxTable   = 256 << 20 // bytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// layout holds the offsets of tensors and their pieces in the data, in bytes.
type layout struct {
	offsets []int64
	pieces  []piece
	first   []int // the first piece of each tensor, and the number of all
	size    int64
}

// piece is a run of rows with one checksum.
type piece struct {
	row, rows int // of its tensor
	at, bytes int64
}

// newLayout places tensors; limit is what they may take at most.
func newLayout(tensors []Tensor, limit int64) (layout, error) {
	l := layout{first: []int{0}}
	names := map[string]bool{}
	for _, t := range tensors {
		rows, rowBytes, err := t.measure()
		if err != nil {
			return layout{}, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if names[t.Name] {
			return layout{}, fmt.Errorf("tensor %q is there twice", t.Name)
		}
		names[t.Name] = true
		l.size = roundUp(l.size, tensorStep)
		hi, bytes := bits.Mul64(uint64(rows), uint64(rowBytes))
		if hi != 0 || bytes > uint64(max(limit-l.size, 0)) {
			return layout{}, fmt.Errorf("tensor %q of shape %v does not fit into %d bytes", t.Name, t.Shape, limit)
		}
		l.offsets = append(l.offsets, l.size)
		step := max(pieceBytes/rowBytes, 1)
		for r := 0; r < rows; r += step {
			n := min(step, rows-r)
			l.pieces = append(l.pieces, piece{r, n, l.size + int64(r)*int64(rowBytes), int64(n) * int64(rowBytes)})
		}
		l.first = append(l.first, len(l.pieces))
		l.size += int64(bytes)
	}
	return l, nil
}

// measure gives the rows of a tensor and the size of one.
func (t Tensor) measure() (rows, rowBytes int, err error) {
	weights, _ := t.DType.Block()
	if !t.DType.Quantized() || len(t.Shape) < 2 {
		return 0, 0, fmt.Errorf("%s of shape %v is no quantized matrix", t.DType, t.Shape)
	}
	rows = 1
	for _, d := range t.Shape {
		if d < 1 {
			return 0, 0, fmt.Errorf("shape %v", t.Shape)
		}
	}
	cols := t.Shape[len(t.Shape)-1]
	if cols%weights != 0 || cols > math.MaxInt32 {
		return 0, 0, fmt.Errorf("rows of %d weights are not whole blocks of %s", cols, t.DType)
	}
	for _, d := range t.Shape[:len(t.Shape)-1] {
		hi, lo := bits.Mul64(uint64(rows), uint64(d))
		if hi != 0 || lo > math.MaxInt {
			return 0, 0, fmt.Errorf("shape %v overflows", t.Shape)
		}
		rows = int(lo)
	}
	return rows, t.DType.Bytes(cols), nil
}

func roundUp(n, step int64) int64 { return (n + step - 1) / step * step }

// header is everything before the data.
type header struct {
	Contents
	layout
	dataStart int64
	sums      []uint32 // of pieces
}

// newHeader plans a file; the checksums are still to be filled.
func newHeader(c Contents) (*header, error) {
	l, err := newLayout(c.Tensors, math.MaxInt64/2)
	if err != nil {
		return nil, err
	}
	h := &header{Contents: c, layout: l, sums: make([]uint32, len(l.pieces))}
	table, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	if len(table) > maxTable {
		return nil, fmt.Errorf("the table of %d tensors has %d bytes", len(c.Tensors), len(table))
	}
	h.dataStart = startOf(int64(len(table)), int64(len(h.sums)))
	return h, nil
}

// startOf returns the offset at which the data begins, in bytes.
func startOf(table, pieces int64) int64 { return roundUp(preamble+table+4*pieces, pageStep) }

// encode gives the bytes before the data.
func (h *header) encode() ([]byte, error) {
	table, err := json.Marshal(h.Contents)
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	out := append([]byte(magic), make([]byte, 8)...)
	le.PutUint32(out[8:], version)
	for _, n := range []int{len(table), len(h.sums), int(h.size)} {
		out = le.AppendUint64(out, uint64(n))
	}
	out = append(out, table...)
	for _, sum := range h.sums {
		out = le.AppendUint32(out, sum)
	}
	le.PutUint32(out[12:], crc32.Checksum(out[16:], castagnoli))
	return out, nil
}

// parseHeader reads the header of a file of the given size. It allocates no more than
// the file's size allows. Errors match [ErrDamaged] or [ErrOther].
func parseHeader(r io.ReaderAt, size int64) (*header, error) {
	var start [preamble]byte
	if n, err := r.ReadAt(start[:], 0); n < preamble {
		return nil, damaged("it ends after %d bytes: %w", n, err)
	}
	le := binary.LittleEndian
	if string(start[:8]) != magic {
		return nil, damaged("it does not begin as such a file does")
	}
	if v := le.Uint32(start[8:]); v != version {
		return nil, fmt.Errorf("%w: version %d, this program has %d", ErrOther, v, version)
	}
	table, pieces, data := le.Uint64(start[16:]), le.Uint64(start[24:]), le.Uint64(start[32:])
	left := uint64(size)
	if table > min(maxTable, left) || pieces > left/4 || data > left {
		return nil, damaged("%d bytes cannot hold a table of %d, %d pieces and %d bytes of data", size, table, pieces, data)
	}
	dataStart := startOf(int64(table), int64(pieces))
	if end := dataStart + int64(data); end != size {
		return nil, damaged("it has %d bytes, its header says %d", size, end)
	}
	rest := make([]byte, table+4*pieces)
	if _, err := io.ReadFull(io.NewSectionReader(r, preamble, int64(len(rest))), rest); err != nil {
		return nil, damaged("read the table: %w", err)
	}
	if sum := crc32.Update(crc32.Checksum(start[16:], castagnoli), castagnoli, rest); sum != le.Uint32(start[12:]) {
		return nil, damaged("the checksum of its table is wrong")
	}
	h := &header{dataStart: dataStart}
	dec := json.NewDecoder(bytes.NewReader(rest[:table]))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&h.Contents); err != nil {
		return nil, damaged("read the table: %w", err)
	}
	var err error
	if h.layout, err = newLayout(h.Tensors, int64(data)); err != nil {
		return nil, damaged("%w", err)
	}
	if uint64(len(h.pieces)) != pieces || uint64(h.size) != data {
		return nil, damaged("its tensors are %d pieces of %d bytes, its header says %d of %d", len(h.pieces), h.size, pieces, data)
	}
	for sums := rest[table:]; len(sums) > 0; sums = sums[4:] {
		h.sums = append(h.sums, le.Uint32(sums))
	}
	return h, nil
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}
