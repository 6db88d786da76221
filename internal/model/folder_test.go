package model

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege")
	}
	link := func(t *testing.T, target, path string) {
		t.Helper()
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"config.json", "tokenizer.json", "model.safetensors"} {
		t.Run(name+" outside", func(t *testing.T) {
			dir, outside := write(t, tiny()), t.TempDir()
			if err := os.Rename(filepath.Join(dir, name), filepath.Join(outside, name)); err != nil {
				t.Fatal(err)
			}
			link(t, filepath.Join(outside, name), filepath.Join(dir, name))
			if _, err := Open(dir, Options{}); !errors.Is(err, ErrOutside) || !strings.Contains(err.Error(), name) {
				t.Errorf("err = %v, want ErrOutside", err)
			}
		})
	}
	t.Run("shard outside", func(t *testing.T) {
		s := tiny()
		s.Shards = 2
		dir, outside, name := write(t, s), t.TempDir(), "model-00002-of-00002.safetensors"
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(outside, name)); err != nil {
			t.Fatal(err)
		}
		link(t, filepath.Join(outside, name), filepath.Join(dir, name))
		if _, err := Open(dir, Options{}); !errors.Is(err, ErrOutside) || !strings.Contains(err.Error(), name) {
			t.Errorf("err = %v, want ErrOutside", err)
		}
	})
	t.Run("GGUF file outside", func(t *testing.T) {
		dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "m.gguf")
		if err := os.WriteFile(outside, []byte("GGUF"), 0o644); err != nil {
			t.Fatal(err)
		}
		link(t, outside, filepath.Join(dir, "m.gguf"))
		if _, err := Open(dir, Options{}); !errors.Is(err, ErrOutside) {
			t.Errorf("err = %v, want ErrOutside", err)
		}
	})
	t.Run("inside", func(t *testing.T) {
		dir := write(t, tiny())
		if err := os.Rename(filepath.Join(dir, "model.safetensors"), filepath.Join(dir, "w")); err != nil {
			t.Fatal(err)
		}
		link(t, "w", filepath.Join(dir, "model.safetensors"))
		mustOpen(t, dir)
	})
	t.Run("to nowhere", func(t *testing.T) {
		dir := write(t, tiny())
		_ = os.Remove(filepath.Join(dir, "tokenizer.json"))
		link(t, "gone", filepath.Join(dir, "tokenizer.json"))
		if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), "cannot be followed") {
			t.Errorf("err = %v, want a link that cannot be followed", err)
		}
	})
	t.Run("the folder itself", func(t *testing.T) {
		dir := write(t, tiny())
		path := filepath.Join(t.TempDir(), "model")
		link(t, dir, path)
		if m := mustOpen(t, path); m.Dir() == path {
			t.Errorf("dir = %s, want the resolved folder", m.Dir())
		}
	})
	t.Run("snapshot of the Hugging Face cache", func(t *testing.T) {
		repo := filepath.Join(t.TempDir(), "models--org--name")
		snapshot, blobs := filepath.Join(repo, "snapshots", "0123"), filepath.Join(repo, "blobs")
		for _, dir := range []string{snapshot, blobs} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		s := tiny()
		s.Shards = 2
		dir := write(t, s)
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range entries {
			blob := filepath.Join(blobs, strings.Repeat(string(rune('a'+i)), 8))
			if err := os.Rename(filepath.Join(dir, e.Name()), blob); err != nil {
				t.Fatal(err)
			}
			link(t, filepath.Join("..", "..", "blobs", filepath.Base(blob)), filepath.Join(snapshot, e.Name()))
		}
		m := mustOpen(t, snapshot)
		if names := m.set.(folderSet).Files(); names[0].Name() != "model-00001-of-00002.safetensors" {
			t.Errorf("first shard is called %q", names[0].Name())
		}
	})
}
