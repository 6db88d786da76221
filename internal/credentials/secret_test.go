package credentials

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestSecretIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster", "secret")
	if _, err := Load(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	made := make([]Secret, 8)
	var wg sync.WaitGroup
	for i := range made {
		wg.Go(func() {
			s, err := Create(path, New())
			if err != nil {
				t.Error(err)
			}
			made[i] = s
		})
	}
	wg.Wait()
	for _, s := range made {
		if s != made[0] || s.IsZero() {
			t.Fatalf("programs that start at a time have different secrets: %v", made)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".secret-*")); len(left) > 0 || err != nil {
		t.Errorf("left behind: %v %v", left, err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path, New()); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a secret that others may read: %v", err)
	}
}

func TestSecretIsNotPrinted(t *testing.T) {
	s := New()
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if text := fmt.Sprintf(format, s); strings.Contains(text, s.Encode()[:16]) || !strings.Contains(text, s.Fingerprint()) {
			t.Errorf("%s prints %s", format, text)
		}
	}
	if text := (Secret{}).String(); text != "no secret" {
		t.Error(text)
	}
}

func TestKeysDiffer(t *testing.T) {
	s := New()
	a, b := s.Key("a"), s.Key("b")
	if len(a) != 32 || bytes.Equal(a, b) || !bytes.Equal(a, s.Key("a")) || bytes.Equal(a, New().Key("a")) {
		t.Errorf("keys %x %x", a, b)
	}
}

func TestDecode(t *testing.T) {
	s := New()
	if got, err := Decode(" " + s.Encode() + "\n"); err != nil || got != s {
		t.Errorf("%v %v", got, err)
	}
	for _, bad := range []string{"", "x", s.Encode()[2:], s.Encode() + "00", strings.Repeat("0", 64)} {
		if got, err := Decode(bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		} else if len(bad) > 10 && strings.Contains(err.Error(), bad[:10]) {
			t.Errorf("the error repeats it: %v", err)
		}
	}
}
