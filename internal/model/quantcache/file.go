package quantcache

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"

	"github.com/dynctl/dynctl/internal/model/mapped"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// File is one mapped file.
type File struct {
	*mapped.File
	header  *header
	data    []byte
	tensors map[string]safetensors.Tensor
}

// Open maps a file that holds want and checks all of it, with all processors. Errors
// name the file and match [fs.ErrNotExist], [ErrDamaged] or [ErrOther], or are the
// cause of ctx.
func Open(ctx context.Context, path string, want Contents) (*File, error) {
	f, err := open(ctx, path, want)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return f, nil
}

func open(ctx context.Context, path string, want Contents) (_ *File, err error) {
	file, err := mapped.Open(path)
	if errors.Is(err, mapped.ErrNotRegular) {
		return nil, damaged("%w", err)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	h, err := parseHeader(file, file.Size())
	if err != nil {
		return nil, err
	}
	if !h.same(want) {
		return nil, fmt.Errorf("%w: %s of checkpoint %.16s, as its files were then", ErrOther, h.Format, h.Source)
	}
	data, err := file.Map()
	if err != nil {
		return nil, err
	}
	file.WillNeed()
	f := &File{File: file, header: h, data: data[h.dataStart:], tensors: map[string]safetensors.Tensor{}}
	for i, t := range h.Tensors {
		rows, rowBytes, _ := t.measure() // the layout has asked
		at, end := h.offsets[i], h.offsets[i]+int64(rows)*int64(rowBytes)
		f.tensors[t.Name] = safetensors.Tensor{
			Name: t.Name, DType: t.DType, Shape: t.Shape, Data: f.data[at:end:end], File: filepath.Base(path), Offset: at,
		}
	}
	return f, errors.Join(f.verify(ctx), f.CheckSize())
}

// verify compares all checksums.
func (f *File) verify(ctx context.Context) error {
	h := f.header
	return inParallel(ctx, len(h.pieces), func(_, i int) error {
		p := h.pieces[i]
		if crc32.Checksum(f.data[p.at:p.at+p.bytes], castagnoli) != h.sums[i] {
			return damaged("a checksum is wrong, of %d bytes at %d", p.bytes, h.dataStart+p.at)
		}
		return nil
	})
}

// Tensor finds a tensor by its name.
func (f *File) Tensor(name string) (safetensors.Tensor, bool) {
	t, ok := f.tensors[name]
	return t, ok
}
