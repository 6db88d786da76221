package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// ErrChanged is returned when a mapped file no longer has the size it was mapped
// with. Its tensors must not be read any more.
var ErrChanged = errors.New("file changed under its mapping")

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
}

// File is one mapped weight file.
type File struct {
	name     string // base name
	file     *os.File
	size     int64
	mapping  []byte
	unmap    func() error
	tensors  []Tensor
	metadata map[string]string

	closeOnce sync.Once
	closeErr  error
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
	// Looked at before it is opened: opening a named pipe would block.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, badf("not a regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	f := &File{name: filepath.Base(path), file: file}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	if info, err = file.Stat(); err != nil {
		return nil, err
	}
	f.size = info.Size()

	header, err := readHeader(file, f.size)
	if err != nil {
		return nil, err
	}
	dataStart := 8 + int64(len(header))
	entries, metadata, err := ParseHeader(header, f.size-dataStart)
	if err != nil {
		return nil, err
	}
	if f.mapping, f.unmap, err = mapFile(file, f.size); err != nil {
		return nil, fmt.Errorf("map: %w", err)
	}
	f.metadata = metadata
	data := f.mapping[dataStart:]
	f.tensors = make([]Tensor, len(entries))
	for i, e := range entries {
		f.tensors[i] = Tensor{
			Name: e.Name, DType: e.DType, Shape: e.Shape,
			Data: data[e.Begin:e.End:e.End], File: f.name, Offset: e.Begin,
		}
	}
	return f, f.CheckSize()
}

// readHeader reads the header with plain reads, so that a file that shrinks
// meanwhile is an error and not a fault.
func readHeader(file *os.File, size int64) ([]byte, error) {
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

// Name is the base name of the file.
func (f *File) Name() string { return f.name }

// Size is the size of the file in bytes when it was mapped.
func (f *File) Size() int64 { return f.size }

// ReadAt reads from the file itself, header included, so that a file that shrank
// is an error and not a fault.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.file.ReadAt(p, off) }

// CheckSize returns [ErrChanged] when the file no longer has the size it was
// mapped with.
func (f *File) CheckSize() error {
	info, err := f.file.Stat()
	if err != nil {
		return fmt.Errorf("check %s: %w", f.name, err)
	}
	if info.Size() != f.size {
		return fmt.Errorf("check %s: %w: %d bytes when mapped, %d now", f.name, ErrChanged, f.size, info.Size())
	}
	return nil
}

// Close unmaps and closes the file. No tensor may be read afterwards.
func (f *File) Close() error {
	f.closeOnce.Do(func() {
		var unmapErr error
		if f.unmap != nil {
			unmapErr = f.unmap()
		}
		f.closeErr = errors.Join(unmapErr, f.file.Close())
		f.mapping, f.tensors = nil, nil
	})
	return f.closeErr
}
