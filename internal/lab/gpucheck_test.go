package lab

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/lab/gpucheck"
	"github.com/dynctl/dynctl/internal/patience"
)

// runGPU runs dynlab gpu-check in this process.
func runGPU(args ...string) (stdout string, err error) {
	var out bytes.Buffer
	cmd := command(&out, os.Stderr)
	cmd.SetArgs(append([]string{gpuCheck}, args...))
	err = cmd.Execute()
	return out.String(), err
}

func TestGPUCheckUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"now"}, `unknown command "now"`},
		{[]string{"--out", t.TempDir(), "--phase", "soon"}, `phase "soon"`},
		{[]string{"--list", "--case", "nothing"}, `no case matches "nothing"`},
		{[]string{"--define", "N=1"}, "name a folder with --kernels"},
		{[]string{"--time", "-1s"}, "-1s is in the past"},
		{[]string{"compare", "one"}, "two folders of results, not 1"},
	} {
		_, err := runGPU(c.args...)
		var usage usageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want a usage error with %q", c.args, err, c.want)
		}
	}
}

func TestGPUCheckLists(t *testing.T) {
	names, err := runGPU("--list", "--case", "measure/gemv/qwen3-8b/*/tokens=1")
	if err != nil || strings.Count(names, "\n") != 5 || !strings.Contains(names, "measure/gemv/qwen3-8b/lm-head/tokens=1\n") {
		t.Errorf("cases\n%s%v", names, err)
	}
	shapes, err := runGPU("--shapes")
	if err != nil || !strings.Contains(shapes, `{"case":"measure/gemm/llama-3.1-8b/down/tokens=2048","op":"matmul","tokens":2048,"rows":4096,"in":14336}`) {
		t.Errorf("shapes\n%s%v", shapes, err)
	}
}

// On a machine without a GPU the command says why nothing can be checked.
func TestGPUCheckWithoutGPU(t *testing.T) {
	if _, err := driver.Open(); err == nil {
		t.Skip("this machine has one")
	}
	if code, _, stderr := execute(t, gpuCheck, "--out", t.TempDir()); code != exitFailed || !strings.Contains(stderr, "no GPU can be checked: ") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
}

// The script runs all phases, in this program's processes, and the second time nothing.
func TestGPUCheckScript(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("arithmetic takes ten times as long, in processes of its own")
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	out := filepath.Join(t.TempDir(), "results")
	run := func() string {
		cmd := exec.CommandContext(t.Context(), bash, "../../scripts/gpu-check.sh", "run", out)
		cmd.Env = append(os.Environ(), asDynlab+"=1", "DYNLAB="+os.Args[0], "OPTIONS=--pretend --case smoke/driver --case compare/embed --case floor/read --case measure/copy --case answers/tokens --case engine/qwen3-0.6b --case golden/embed --case ipc --case tune/gemm/rows=1024,in=3072,tokens=128", "CUDA_VISIBLE_DEVICES=", "BUDGET=300")
		said, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		return string(said)
	}
	said := run()
	results, err := gpucheck.Results(out)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]gpucheck.Result{}
	for _, r := range results {
		by[r.Case] = r
	}
	phases := map[string]bool{}
	for _, r := range by {
		if phases[r.Phase] = true; r.End != gpucheck.Passed {
			t.Errorf("%s: %q %s", r.Case, r.End, r.Why)
		}
	}
	if len(phases) != len(gpucheck.Phases()) {
		t.Errorf("phases %v", phases)
	}
	for _, want := range []string{"smoke: ", "ipc: 1 cases", "# Check of CUDA kernels", "times mean nothing"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%.3000s", want, said)
		}
	}
	for _, name := range []string{gpucheck.ResultsFile, gpucheck.GoldensFile, gpucheck.SummaryFile, "shapes.jsonl"} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if again := run(); strings.Contains(again, "cases, ") {
		t.Errorf("the second time it runs\n%.3000s", again)
	}
}
