package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/dynctl/dynctl/internal/model/mapped"
)

// ErrChanged is [mapped.ErrChanged].
var ErrChanged = mapped.ErrChanged

// Tensor is one mapped tensor, row-major and little-endian. Data need not be
// aligned: old files start their data at any byte.
type Tensor struct {
	Name  string
	DType DType
	Shape []int
	Data  []byte
	// File and Offset say where the tensor lies: the base name of its file and
	// the byte offset in the data part.
	File   string
	Offset int64
	// Scales belong to the weights of a matrix of F8_E4M3; nil for all other types, and
	// for what a file has by itself.
	Scales *Scales
}

// File is one mapped weight file.
type File struct {
	*mapped.File
	tensors  []Tensor
	metadata map[string]string
}

// Open maps the file and checks its header completely. Errors name the file by
// its base name and match [ErrFormat] when the content is at fault.
func Open(path string) (*File, error) {
	f, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", filepath.Base(path), err)
	}
	return f, nil
}

func open(path string) (_ *File, err error) {
	file, err := mapped.Open(path)
	if errors.Is(err, mapped.ErrNotRegular) || errors.Is(err, mapped.ErrPointer) {
		return nil, badf("%w", err)
	}
	if err != nil {
		return nil, err
	}
	f := &File{File: file}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	header, err := readHeader(file, f.Size())
	if err != nil {
		return nil, err
	}
	dataStart := 8 + int64(len(header))
	entries, metadata, err := ParseHeader(header, f.Size()-dataStart)
	if err != nil {
		return nil, err
	}
	data, err := file.Map()
	if err != nil {
		return nil, err
	}
	f.metadata = metadata
	f.tensors = tensorsOf(entries, data[dataStart:], f.Name())
	return f, f.CheckSize()
}

// Parse reads the content of a file that is in memory, which the tensors share. Errors
// match [ErrFormat].
func Parse(content []byte) ([]Tensor, error) {
	header, err := readHeader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, err
	}
	data := content[8+len(header):]
	entries, _, err := ParseHeader(header, int64(len(data)))
	if err != nil {
		return nil, err
	}
	return tensorsOf(entries, data, ""), nil
}

func tensorsOf(entries []Entry, data []byte, file string) []Tensor {
	tensors := make([]Tensor, len(entries))
	for i, e := range entries {
		tensors[i] = Tensor{
			Name: e.Name, DType: e.DType, Shape: e.Shape,
			Data: data[e.Begin:e.End:e.End], File: file, Offset: e.Begin,
		}
	}
	return tensors
}

// readHeader reads the header with plain reads, so that a file that shrinks
// meanwhile is an error and not a fault.
func readHeader(file io.ReaderAt, size int64) ([]byte, error) {
	if size < 8 {
		return nil, badf("file has %d bytes, fewer than 8", size)
	}
	var prefix [8]byte
	if _, err := file.ReadAt(prefix[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(prefix[:])
	if n > maxHeader {
		return nil, badf("header length %d is over %d", n, maxHeader)
	}
	if int64(n) > size-8 {
		return nil, badf("header length %d is past the end of the file (%d bytes)", n, size)
	}
	header := make([]byte, n)
	if _, err := io.ReadFull(io.NewSectionReader(file, 8, int64(n)), header); err != nil {
		return nil, err
	}
	return header, nil
}

// Tensors lists the tensors by their offset.
func (f *File) Tensors() []Tensor { return f.tensors }

// Metadata is the header's free-form text, nil when it has none.
func (f *File) Metadata() map[string]string { return f.metadata }
