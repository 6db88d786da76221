package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestGeneratedFileIsCurrent(t *testing.T) {
	want, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", fileName))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is stale: run go generate ./internal/model/minitok", fileName)
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
		if got[i] != want[i] {
			t.Errorf("merge %d = %q, want %q", i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d merges: %q", len(got), got)
	}
	if _, err := learn("abc", 1); err == nil {
		t.Error("no pair occurs twice: want an error")
	}
}
