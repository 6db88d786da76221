// Package modeltest makes checkpoints with random weights for tests.
//
// Start with [Generate]. The generator itself is [model.Synthetic], which commands
// use; this package ties it to a test's temporary folder.
//
// It owns nothing and does not open what it writes.
package modeltest

import (
	"testing"

	"github.com/dynctl/dynctl/internal/model"
)

// Spec describes a checkpoint.
type Spec = model.Synthetic

// Generate writes a checkpoint into a temporary folder of the test and returns
// the folder.
func Generate(t testing.TB, spec Spec) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := spec.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Open generates a checkpoint and opens it until the end of the test.
func Open(t testing.TB, spec Spec) *model.Model {
	t.Helper()
	m, err := model.Open(Generate(t, spec), model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}
