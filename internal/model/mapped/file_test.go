package mapped

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestMap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w")
	content := bytes.Repeat([]byte("weights "), 4096)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := f.Map()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, content) || f.Name() != "w" || f.Size() != int64(len(content)) {
		t.Errorf("mapped %d bytes of %s, want %d", len(data), f.Name(), len(content))
	}
	var head [7]byte
	if _, err := f.ReadAt(head[:], 8); err != nil || string(head[:]) != "weights" {
		t.Errorf("read %q, %v", head, err)
	}
	f.Rename("link")
	if err := f.CheckSize(); err != nil || f.Name() != "link" {
		t.Errorf("unchanged: %v", err)
	}
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	if err := f.CheckSize(); !errors.Is(err, ErrChanged) {
		t.Errorf("shortened: err = %v, want ErrChanged", err)
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrNotRegular) {
		t.Errorf("folder: err = %v, want ErrNotRegular", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: err = %v, want ErrNotExist", err)
	}
}
