package agent

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemory(t *testing.T) {
	total, free := totalMemory(), availableMemory()
	if total < 1<<26 || free <= 0 || free > total {
		t.Errorf("%d bytes of %d are free", free, total)
	}
}

func TestSmaller(t *testing.T) {
	for _, tc := range [][3]int64{{0, 0, 0}, {0, 5, 5}, {5, 0, 5}, {3, 5, 3}, {5, 3, 3}} {
		if got := smaller(tc[0], tc[1]); got != tc[2] {
			t.Errorf("smaller of %d and %d: %d", tc[0], tc[1], got)
		}
	}
}

func TestLineOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stat")
	if err := os.WriteFile(path, []byte("MemTotal:       1000 kB\nMemAvailable:     17 kB\ninactive_file 4096\ninactive_file_x 1\nbad: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for prefix, want := range map[string]int64{"MemTotal:": 1000, "MemAvailable:": 17, "inactive_file ": 4096, "missing:": 0, "bad:": 0} {
		if got := lineOf(path, prefix); got != want {
			t.Errorf("%q: %d, want %d", prefix, got, want)
		}
	}
	if got := lineOf(filepath.Join(t.TempDir(), "missing"), "x"); got != 0 {
		t.Errorf("no file: %d", got)
	}
}
