package model

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dynctl/dynctl/internal/orphan"
)

// quantizeEnv makes the test binary quantize the model in the folder that it names, with
// the cache beside it, and stop in the middle.
const quantizeEnv = "DYNCTL_TEST_QUANTIZE"

func cacheBeside(dir string) string { return filepath.Join(filepath.Dir(dir), "quantized") }

func quantizeForever(dir string) int {
	m, err := Open(dir, Options{Quantize: "q8_0"})
	if err == nil {
		err = m.Prepare(context.Background(), Cache{Dir: cacheBeside(dir), Progress: func(float64) {
			fmt.Println("begun")
			select {}
		}})
	}
	fmt.Fprintln(os.Stderr, "it came to an end:", err)
	return 1
}

// TestKilledInTheMiddle kills a process that writes the file while another one waits
// for it: the other one makes it, and nothing else is left.
func TestKilledInTheMiddle(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (Synthetic{Vocab: 300}).Write(dir); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), quantizeEnv+"="+dir)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := orphan.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "begun\n" {
		t.Fatalf("the process says %q, %v", line, err)
	}
	if left := listed(t, cacheBeside(dir)); !strings.Contains(left, ".tmp-") {
		t.Fatalf("the file is not being written: %s", left)
	}
	m := mustOpenOptions(t, dir, Options{Quantize: "q8_0"})
	prepared := make(chan error, 1)
	go func() { prepared <- m.Prepare(t.Context(), Cache{Dir: cacheBeside(dir)}) }()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if err := <-prepared; err != nil {
		t.Fatal(err)
	}
	if q, ok := m.Weight(RoleQ, 0); !ok || q.DType != "Q8_0" {
		t.Errorf("queries are %s", q.DType)
	}
	if left := listed(t, cacheBeside(dir)); strings.Contains(left, " ") || !strings.HasSuffix(left, "-q8_0.weights") {
		t.Errorf("the folder has %s", left)
	}
}

func TestAdvice(t *testing.T) {
	full := fmt.Errorf("write x: %w", &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC})
	if got := advice(full, "/state"); !strings.Contains(got, "in /state may be deleted") {
		t.Errorf("a full disk: %q", got)
	}
	if got := advice(os.ErrPermission, "/state"); got != "" {
		t.Errorf("another error: %q", got)
	}
}

func mustOpenOptions(t *testing.T, dir string, opts Options) *Model {
	t.Helper()
	m, err := Open(dir, opts)
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

func listed(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}
