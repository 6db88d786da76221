package tensorfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// Errors of this package match one of these.
var (
	// ErrFormat is returned for files that are broken or no files of tensors.
	ErrFormat = errors.New("not a valid file of tensors")
	// ErrUnsupported is returned for files that hold more than plain tensors.
	ErrUnsupported = errors.New("unsupported file of tensors")
	// ErrLimit is returned for files that are larger than the limits allow.
	ErrLimit = errors.New("file of tensors over the limit")
)

func formatf(text string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrFormat, fmt.Errorf(text, args...))
}

func unsupportedf(text string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnsupported, fmt.Errorf(text, args...))
}

func limitf(text string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrLimit, fmt.Errorf(text, args...))
}

// MainName is the key of the embeddings in a dictionary.
const MainName = "mm_embeddings"

// Limits bound what [Read] takes. A field that is 0 means the default.
type Limits struct {
	Bytes   int // of the file, and of all tensors together; default 64 MiB
	Tensors int // default 64
}

func (l Limits) bytes() int   { return cmp.Or(l.Bytes, 64<<20) }
func (l Limits) tensors() int { return cmp.Or(l.Tensors, 64) }

// File is what a file holds.
type File struct {
	// Embeddings is the tensor under MainName, or else the only one of the file. Its name
	// is that in the file, empty if it has none.
	Embeddings Tensor
	// Auxiliary are all others, sorted by name: mm_embedding_special_tokens,
	// mm_embedding_offsets and what else a dictionary has. Lists of whole numbers are here
	// as tensors of I64.
	Auxiliary []Tensor
}

// Read reads a file of torch.save or safetensors. The tensors may share memory with data.
func Read(data []byte, l Limits) (*File, error) {
	if len(data) > l.bytes() {
		return nil, limitf("%d bytes, %d are allowed", len(data), l.bytes())
	}
	var tensors []Tensor
	var err error
	switch {
	case bytes.HasPrefix(data, []byte("PK\x03\x04")), bytes.HasPrefix(data, []byte("PK\x05\x06")):
		tensors, err = readTorch(data, l)
	case len(data) > 14 && data[0] == 0x80 && string(data[2:14]) == legacyMagic:
		return nil, unsupportedf("the old format of torch.save: save it with torch 1.6 or later, or as safetensors")
	default:
		tensors, err = readSafetensors(data)
	}
	if err != nil {
		return nil, err
	}
	return arrange(tensors, l)
}

// legacyMagic is the number that files of torch before version 1.6 begin with, as a pickle
// after its protocol. Such files are pickles, one after another.
const legacyMagic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"

func readSafetensors(data []byte) ([]Tensor, error) {
	list, err := safetensors.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%w: neither of torch.save nor safetensors: %w", ErrFormat, err)
	}
	var tensors []Tensor
	for _, t := range list {
		tensors = append(tensors, Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Data: t.Data})
	}
	return tensors, nil
}

// arrange finds the embeddings among the tensors.
func arrange(tensors []Tensor, l Limits) (*File, error) {
	if len(tensors) > l.tensors() {
		return nil, limitf("%d tensors, %d are allowed", len(tensors), l.tensors())
	}
	main := slices.IndexFunc(tensors, func(t Tensor) bool { return t.Name == MainName })
	if main < 0 && len(tensors) == 1 {
		main = 0
	}
	if main < 0 {
		return nil, formatf("%d tensors, none of which is called %s", len(tensors), MainName)
	}
	f := &File{Embeddings: tensors[main]}
	f.Auxiliary = slices.Delete(tensors, main, main+1)
	slices.SortFunc(f.Auxiliary, func(a, b Tensor) int { return cmp.Compare(a.Name, b.Name) })
	return f, nil
}
