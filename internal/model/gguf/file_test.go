package gguf_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/gguf/gguftest"
)

func TestOpen(t *testing.T) {
	var b gguftest.Builder
	b.Tensor("a", gguf.F16, []int{3}, []byte{1, 2, 3, 4, 5, 6})
	b.Tensor("b", gguf.Q4_0, []int{1, 32}, bytes.Repeat([]byte{9}, 18))
	path := filepath.Join(t.TempDir(), "m.gguf")
	b.Write(t, path)
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Tensors[0].Data; !bytes.Equal(got, []byte{1, 2, 3, 4, 5, 6}) {
		t.Errorf("data of a: %v", got)
	}
	if got := f.Tensors[1].Data; len(got) != 18 || got[17] != 9 {
		t.Errorf("data of b: %v", got)
	}
	if f.Name() != "m.gguf" || f.CheckSize() != nil {
		t.Errorf("name %s, check: %v", f.Name(), f.CheckSize())
	}
	if err := os.Truncate(path, 40); err != nil {
		t.Fatal(err)
	}
	if err := f.CheckSize(); !errors.Is(err, gguf.ErrChanged) {
		t.Errorf("shortened: err = %v, want ErrChanged", err)
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Error(err)
	}
}

func TestOpenWithoutTensors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vocab.gguf")
	new(gguftest.Builder).Write(t, path)
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, []byte("GGUF"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := gguf.Open(path); !errors.Is(err, gguf.ErrFormat) || !strings.Contains(err.Error(), "open m.gguf") {
		t.Errorf("cut short: err = %v, want ErrFormat and the name", err)
	}
	if _, err := gguf.Open(t.TempDir()); !errors.Is(err, gguf.ErrFormat) {
		t.Errorf("folder: err = %v, want ErrFormat", err)
	}
	if _, err := gguf.Open(path + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: err = %v, want ErrNotExist", err)
	}
}
