package gpucheck

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// torch runs the script that measures with PyTorch, over a pretended one.
func torch(t *testing.T, dir string, shapes []Shape, what string, environment ...string) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	file := filepath.Join(dir, "shapes.jsonl")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range shapes {
		if err := json.NewEncoder(f).Encode(s); err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
	cmd := exec.CommandContext(t.Context(), python, "../../../scripts/gpu-check-torch.py", dir, file, what)
	cmd.Env = append(os.Environ(), append([]string{"PYTHONPATH=testdata", "PYTHONDONTWRITEBYTECODE=1"}, environment...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// What PyTorch makes of the same shapes stands beside our figures, and is measured once.
func TestTorch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var shapes []Shape
	for _, s := range Shapes() {
		if strings.Contains(s.Case, "qwen3-0.6b") && s.Context <= 2048 && s.Sequences < 9 && s.Tokens < 9 {
			shapes = append(shapes, s)
		}
	}
	ours := Result{Case: shapes[0].Case, Phase: "measure", End: Passed, Figure: 123, Unit: "us"}
	f, err := openFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.add(ours); err != nil {
		t.Fatal(err)
	}
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	torch(t, dir, nil, "floor")
	torch(t, dir, shapes, "shapes", "PRETENDED_ROOM=4096")
	results, err := Results(dir)
	if err != nil || len(results) != len(shapes)+2 {
		t.Fatalf("%d results of %d shapes, %v", len(results), len(shapes), err)
	}
	skipped := 0
	for _, r := range results[1:] {
		if r.End == Skipped && strings.HasPrefix(r.Why, "no room: no room") {
			skipped++
			continue
		}
		if r.End != Passed || r.Phase != otherPhase || r.Device != "Fake H200" || r.Date.IsZero() || len(r.Samples) != 5 {
			t.Errorf("%+v", r)
		}
		if want := 500.0; r.Unit == "us" && r.Figure != want { // half a millisecond for each operation of a graph
			t.Errorf("%s takes %g us, want %g", r.Case, r.Figure, want)
		}
	}
	if skipped == 0 || skipped > len(shapes)/2 {
		t.Errorf("%d cases are left out", skipped)
	}
	if r := results[1]; r.Case != torchFloor || r.Unit != "TFLOP/s" || r.Figure < 2199 || r.Figure > 2200 {
		t.Errorf("the floor is %+v", r)
	}
	if said := torch(t, dir, shapes, "shapes"); strings.Contains(said, "pass") {
		t.Errorf("a second time: %s", said)
	}
	if report := string(Report(results)); !strings.Contains(report, "  500 ") || strings.Contains(report, "torch/") && !strings.Contains(report, "such as `torch/") {
		t.Errorf("the report is\n%s", report)
	}
	if said := torch(t, dir, shapes, "shapes", "PRETENDED_CUDA=no"); !strings.Contains(said, "no CUDA device here") {
		t.Errorf("without CUDA: %s", said)
	}
}
