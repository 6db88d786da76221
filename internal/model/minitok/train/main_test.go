package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestGeneratedFilesAreCurrent(t *testing.T) {
	files, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run go generate ./internal/model/minitok", name)
		}
	}
}

func TestLearn(t *testing.T) {
	got, err := learn("low low lower lowest", 3)
	if err != nil {
		t.Fatal(err)
	}
	// "lo" and "ow" are equally frequent: the first in the alphabet wins.
	want := []string{"l o", "lo w", "Ġ low"}
	for i := range want {
		if got.merges[i] != want[i] {
			t.Errorf("merge %d = %q, want %q", i, got.merges[i], want[i])
		}
	}
	if n := got.wholeWords()["Ġlow"]; n != 1 {
		t.Errorf("\" low\" counted %d times, want 1", n)
	}
	if _, err := learn("abc", 1); err == nil {
		t.Error("no pair occurs twice: want an error")
	}
}
