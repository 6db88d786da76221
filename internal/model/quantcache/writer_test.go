package quantcache

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestFaults fails each step of writing, as a full disk does: nothing is left behind,
// and the file that was there stays.
func TestFaults(t *testing.T) {
	for _, step := range []string{"reserve", "write", "header", "sync", "close", "rename"} {
		for _, before := range []bool{false, true} {
			t.Run(step, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "x.weights")
				old := []byte("the old one")
				if before {
					if err := os.WriteFile(path, old, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				var writes atomic.Int32
				w, err := create(path, contents(), func(s string) error {
					if s == step && (s != "write" || writes.Add(1) == 3) {
						return syscall.ENOSPC
					}
					return nil
				})
				if err == nil {
					if err = fill(w); err != nil {
						w.Abort()
					}
				}
				if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), path) {
					t.Errorf("err = %v, want ENOSPC and the path", err)
				}
				if before {
					only(t, path)
					if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, old) {
						t.Errorf("the old file is %q, %v", got, err)
					}
				} else if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) > 0 {
					t.Errorf("left behind: %v, %v", entries, err)
				}
			})
		}
	}
}

func TestFillFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.weights")
	w, err := Create(path, contents())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	bad := errors.New("bad weight")
	var calls atomic.Int32
	err = w.Fill(t.Context(), 1, func([]byte, int, int) error { calls.Add(1); return bad })
	if !errors.Is(err, bad) || !strings.Contains(err.Error(), "tensor experts") {
		t.Errorf("err = %v", err)
	}
	if n, most := int(calls.Load()), workers(); n > most {
		t.Errorf("%d calls after the first failed, at most %d run at once", n, most)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	err = w.Fill(ctx, 1, func([]byte, int, int) error { cancel(stop); return nil })
	if !errors.Is(err, stop) {
		t.Errorf("err = %v, want the cause of the context", err)
	}
	w.Abort()
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestCreateRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(filepath.Join(file, "x.weights"), contents()); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("below a file: %v", err)
	}
	c := contents()
	c.Tensors[1].Name = "head"
	if _, err := Create(filepath.Join(t.TempDir(), "x"), c); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a name twice: %v", err)
	}
}

func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.weights")
	if err := RemoveLeftovers(filepath.Join(dir, "absent", "x"), true); err != nil {
		t.Error(err)
	}
	put := func(name string, age time.Duration) {
		t.Helper()
		full := filepath.Join(dir, name)
		if err := os.WriteFile(full, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(full, then, then); err != nil {
			t.Fatal(err)
		}
	}
	names := func() string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, e := range entries {
			list = append(list, e.Name())
		}
		return strings.Join(list, " ")
	}
	put("x.weights", 0)
	put("x.weights.tmp-1", 48*time.Hour)
	put("x.weights.tmp-2", time.Hour)
	put("y.weights.tmp-3", 48*time.Hour)
	if err := RemoveLeftovers(path, false); err != nil || names() != "x.weights x.weights.tmp-2 y.weights.tmp-3" {
		t.Errorf("without the lock: %s, %v", names(), err)
	}
	if err := RemoveLeftovers(path, true); err != nil || names() != "x.weights y.weights.tmp-3" {
		t.Errorf("with the lock: %s, %v", names(), err)
	}
}
