// Package modeltest makes checkpoints with random weights for tests.
//
// Start with [Generate]. The generator itself is [model.Synthetic], which commands
// use; this package ties it to a test's temporary folder. [GGUF] writes a checkpoint
// as a GGUF file, with tables of its own, so that reading it back proves something.
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
	return open(t, Generate(t, spec))
}
