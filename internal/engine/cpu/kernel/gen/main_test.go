package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestGenerated holds the files of the package to what would be generated now.
func TestGenerated(t *testing.T) {
	for name, want := range files() {
		got, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is stale: run go generate in internal/engine/cpu/kernel", name)
		}
	}
}
