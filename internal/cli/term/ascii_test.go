package term

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestASCIIFollowsTheLocale(t *testing.T) {
	for _, tc := range []struct {
		env  Env
		want bool
	}{
		{nil, false},
		{Env{"LC_ALL=C"}, true},
		{Env{"LC_ALL=POSIX", "LANG=en_US.UTF-8"}, true},
		{Env{"LC_ALL=", "LANG=C"}, true},
		{Env{"LANG=de_DE.ISO-8859-1"}, true},
		{Env{"LC_CTYPE=en_US.UTF-8", "LANG=C"}, false},
		{Env{"LC_ALL=C.utf8"}, false},
	} {
		if got := ASCII(tc.env); got != tc.want {
			t.Errorf("%q: %t", tc.env, got)
		}
	}
}

func TestLocalizedReplacesSignsAndNothingElse(t *testing.T) {
	var out, errs bytes.Buffer
	s := Streams{Out: &out, Err: &errs}.Localized(Env{"LC_ALL=C"}).Localized(Env{"LC_ALL=C"})
	text := "● ready größe 4 → 6\n"
	for _, b := range []byte(text) { // characters may come in pieces
		if n, err := s.Out.Write([]byte{b}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	_, _ = s.Data().Write([]byte(text))
	_, _ = s.Err.Write([]byte("✓ \xff\n"))
	if want := "* ready größe 4 -> 6\n" + text; out.String() != want || errs.String() != "+ \xff\n" || !s.ASCII {
		t.Errorf("got %q and %q", out.String(), errs.String())
	}
	out.Reset()
	s = Streams{Out: &out}.Localized(Env{"LANG=C.UTF-8"})
	_, _ = s.Out.Write([]byte(text))
	_, _ = s.Data().Write([]byte(text))
	if out.String() != text+text || s.ASCII {
		t.Errorf("got %q", out.String())
	}
}

// Whatever a command draws beyond ASCII has a sign that stands for it.
func TestEverySignOfCommandsHasAnASCIIForm(t *testing.T) {
	found := 0
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "ascii.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			l, ok := n.(*ast.BasicLit)
			if !ok || l.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(l.Value)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range text {
				if r <= 0x7f {
					continue
				}
				found++
				if s, ok := signs[r]; !ok || strings.ContainsFunc(s, func(r rune) bool { return r > 0x7f }) {
					t.Errorf("%s: %q has no ASCII form", path, r)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || found < 20 {
		t.Errorf("%d signs found, %v", found, err)
	}
}
