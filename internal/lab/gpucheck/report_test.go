package gpucheck

import (
	"strings"
	"testing"
	"time"
)

// A report has what did not pass, and figures beside those of others.
func TestReport(t *testing.T) {
	at := time.Date(2027, 1, 15, 9, 30, 0, 0, time.UTC)
	clock, watts := 1755, 512.5
	about := About{Device: "NVIDIA H200", Capability: "9.0", Driver: "580.95", CUDA: "13.0", Build: "dynamod v1"}
	measured := func(name, phase string, figure, floor float64) Result {
		return Result{
			Case: name, Phase: phase, End: Passed, Figure: figure, Unit: "us", FloorPercent: floor, Rates: &Rates{4.3e12, 788e12, "measured on an H200"}, About: about, Date: at,
			State: State{ClockMHz: &clock, PowerWatts: &watts},
		}
	}
	hot := measured("measure/copy/blocks=32", "measure", 150, 80)
	hot.Throttled = []string{"too warm"}
	text := string(Report([]Result{
		measured("measure/gemv/m/o/tokens=1", "measure", 20, 41), measured("measure/gemm/m/o/tokens=1", "measure", 25, 33),
		measured("measure/cublaslt/m/o/tokens=1", "measure", 12.5, 66), measured("torch/gemm/m/o/tokens=1", "torch", 13.5, 0), hot,
		{Case: "measure/x", Phase: "measure", End: Skipped, Why: "no room", About: about, Date: at}, {Case: "measure/y", Phase: "measure", End: Skipped, Why: "no room", About: about, Date: at.Add(time.Minute)},
		{Case: "compare/z", Phase: "compare", End: Hung, Why: "no end\nat all", About: about, Date: at},
	}))
	for _, want := range []string{
		"- NVIDIA H200, compute capability 9.0, CUDA 13.0, driver 580.95, by dynamod v1\n- 2027-01-15 09:30 UTC to 2027-01-15 09:31 UTC\n",
		"| measure | 4 | 0 | 0 | 0 | 0 | 2 |\n", "| compare | 0 | 0 | 1 | 0 | 0 | 0 |\n",
		"- hang `compare/z`: no end; at all\n", "- left out, 2 cases such as `measure/x`: no room\n", "`measure/copy/blocks=32` ran while clocks were lowered: too warm",
		"4.3e+03 GB/s and operations at 788 TFLOP/s (measured on an H200)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q", want)
		}
	}
	if strings.Contains(text, "pretended") || strings.Contains(text, "cublaslt/m") {
		t.Error("it has what it should not")
	}
	rows := 0
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if strings.HasSuffix(line, "m/o/tokens=1\n") {
			rows++
			if len(fields) != 9 || fields[4] != "12.5" || fields[5] != "13.5" || fields[6] != "1755" || fields[7] != "512" {
				t.Errorf("line %q", line)
			}
		}
	}
	if rows != 2 || t.Failed() {
		t.Errorf("%d rows in\n%s", rows, text)
	}
	if text := string(Report(nil)); !strings.Contains(text, "There are no results.") {
		t.Errorf("of nothing: %s", text)
	}
}
