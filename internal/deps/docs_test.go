package deps

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// namedFile is a Go file in a text, `frontend/serve.go` or `chunk.go`.
var namedFile = regexp.MustCompile("`([a-z0-9_/.]+\\.go)`")

// Texts that lead through the code name files that are there.
func TestDocumentsNameFilesThatExist(t *testing.T) {
	top := root(t)
	documents, err := filepath.Glob(filepath.Join(top, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join(top, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, doc := range append(documents, more...) {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		var dirs []string // of the files named so far: short names follow long ones
		for _, m := range namedFile.FindAllStringSubmatch(string(text), -1) {
			checked++
			name := m[1]
			found := func(dir string) bool {
				_, err := os.Stat(filepath.Join(dir, name))
				return err == nil
			}
			switch {
			case found(filepath.Join(top, "internal")):
				dirs = append(dirs, filepath.Join(top, "internal", filepath.Dir(name)))
			case found(top):
				dirs = append(dirs, filepath.Join(top, filepath.Dir(name)))
			case !slices.ContainsFunc(dirs, found):
				t.Errorf("%s names %s, which does not exist", filepath.Base(doc), name)
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d files are named: the pattern does not match any more", checked)
	}
}
