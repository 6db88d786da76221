package lab

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReplaceFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "docs", "report.md")
	for _, want := range []string{"first", "second"} {
		if err := replaceFile(path, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v: want the report only", entries, err)
	}
	if err := replaceFile(filepath.Join(path, "below a file"), nil); err == nil {
		t.Error("wrote below a file")
	}
}
