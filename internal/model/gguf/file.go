package gguf

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/dynctl/dynctl/internal/model/mapped"
)

// ErrChanged is [mapped.ErrChanged].
var ErrChanged = mapped.ErrChanged

// File is one mapped file.
type File struct {
	*mapped.File
	Header
}

// Open maps the file and checks its header completely. Errors name the file by its
// base name and match [ErrFormat] when the content is at fault.
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
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	// Read rather than mapped, so that a file that shrinks meanwhile is an error
	// and not a fault.
	header, err := ParseHeader(io.NewSectionReader(file, 0, file.Size()), file.Size())
	if err != nil {
		return nil, err
	}
	f := &File{File: file, Header: *header}
	if len(f.Tensors) == 0 {
		return f, nil
	}
	data, err := file.Map()
	if err != nil {
		return nil, err
	}
	data = data[f.DataStart:]
	for i := range f.Tensors {
		t := &f.Tensors[i]
		t.Data = data[t.Offset : t.Offset+t.Size : t.Offset+t.Size]
	}
	return f, f.CheckSize()
}
