package clustertest_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// unableToRun is the exit code with which the script says that this machine cannot
// run it.
const unableToRun = 77

// Two dynamod processes on two hosts, which are network namespaces, serve both
// strategies over networks that are slow, narrow, lossy or cut in the middle.
func TestTwoHosts(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("network namespaces are those of Linux")
	}
	if os.Getenv("DYNCTL_TWO_HOSTS") == "" {
		t.Skip("takes minutes: make two-hosts")
	}
	onHosts(t, "two-hosts.sh", 20*time.Minute, nil, "./cmd/dynctl", "./cmd/dynamod", "./internal/clustertest/cable")
}

// What docs/first-steps.md and docs/production.md say about two hosts, typed as it stands.
func TestFirstStepsOnTwoHosts(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("network namespaces are those of Linux")
	}
	if testing.Short() {
		t.Skip("builds and starts programs")
	}
	dir := modeltest.Generate(t, modeltest.Spec{Family: "llama", KVHeads: 2, Vocab: 600})
	onHosts(t, "first-steps.sh", 3*time.Minute, []string{modeltest.GGUF(t, dir, gguf.F32)}, "./cmd/dynctl", "./cmd/dynamod")
}

// onHosts builds programs and runs a script with their directory and more arguments.
func onHosts(t *testing.T, script string, most time.Duration, args []string, programs ...string) {
	t.Helper()
	bin := t.TempDir()
	build := exec.Command("go", append([]string{"build", "-o", bin + "/"}, programs...)...)
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", append([]string{filepath.Join("..", "..", "scripts", script), bin}, args...)...)
	// It removes its namespaces when it is asked to end.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == unableToRun:
		t.Skip(out.String())
	case err != nil:
		t.Fatalf("%v\n%s", err, out.String())
	}
	t.Log(out.String())
}
