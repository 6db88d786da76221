package gpucheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
)

// options are for a run whose processes come to harm.
func options(t *testing.T, harm string) Options {
	t.Helper()
	return Options{
		Out: t.TempDir(), Models: t.TempDir(), Pretended: true, Child: []string{os.Args[0]}, environment: append(os.Environ(), asChild+"="+harm), Build: "a test",
	}
}

// outcomes runs what is chosen and returns how cases ended, by name.
func outcomes(t *testing.T, o Options) (map[string]Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*long)
	defer cancel()
	err := Run(ctx, o)
	all, e := Results(o.Out)
	if e != nil {
		t.Fatal(e)
	}
	by := map[string]Result{}
	for _, r := range all {
		by[r.Case] = r
	}
	return by, err
}

// Everything runs over the pretended driver, and leaves a result with what it was found on.
func TestEverything(t *testing.T) {
	t.Parallel()
	o := options(t, "none")
	if patience.RaceDetector { // arithmetic takes ten times as long, and shares nothing
		o.Phases = []string{"smoke", "floor", "ipc"}
	}
	got, err := outcomes(t, o)
	if err != nil {
		t.Errorf("Run() = %v", err)
	}
	chosen, err := choose(o.Phases, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range chosen {
		r, known := got[c.Name]
		leftOut := strings.Contains(r.Why, "rehearsal")
		if !known || r.End != Passed && (r.End != Skipped || !leftOut) {
			t.Errorf("%s: %s %s", c.Name, r.End, r.Why)
			continue
		}
		if r.Phase != c.Phase || r.Device != "Fake H200" || r.Capability != "9.0" || r.CUDA != "13.0" || r.Build != "a test" || !r.Pretended || r.Date.IsZero() {
			t.Errorf("%s: %+v", c.Name, r)
		}
		if c.Phase == "measure" && !leftOut && (r.Unit != "us" || r.Figure <= 0 || len(r.Samples) < 5 || r.FloorPercent != 0 || r.Also["gb_per_s"] <= 0 || len(r.Kernels) == 0 || len(r.PTX) == 0) {
			t.Errorf("%s: %+v", c.Name, r)
		}
	}
	for name, gpus := range map[string]float64{"answers/tokens": 0, "answers/ranks=2": 1} {
		if r := got[name]; !patience.RaceDetector && (r.Also["right_answers"] != questions || r.Also["gpus"] != gpus) {
			t.Errorf("answers: %+v", r)
		}
	}
	goldens := goldensOf(t, o.Out)
	for _, c := range chosen {
		name, golden := strings.CutPrefix(c.Name, "golden/")
		if g := goldens[name]; golden && got[c.Name].End == Passed && (len(g.Outputs) == 0 || len(g.Outputs[0].Values) == 0 || len(g.PTX) == 0 || !g.Pretended) {
			t.Errorf("golden of %s: %+v", name, g)
		}
	}
	if same, err := CompareRuns(o.Out, o.Out); err != nil || !patience.RaceDetector && !strings.Contains(string(same), "the most likely token is the same, 100.0 %") {
		t.Errorf("a run beside itself: %v\n%.3000s", err, same)
	}
	report := string(Report(slices.Collect(values(got))))
	for _, want := range []string{"Fake H200, compute capability 9.0, CUDA 13.0, by a test", "times mean nothing", "| smoke |", "launch/graph"} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q:\n%.3000s", want, report)
		}
	}
}

func values(m map[string]Result) func(yield func(Result) bool) {
	return func(yield func(Result) bool) {
		for _, r := range m {
			if !yield(r) {
				return
			}
		}
	}
}

func goldensOf(t *testing.T, dir string) map[string]Golden {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, GoldensFile))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]Golden{}
	for line := range bytes.Lines(text) {
		var g Golden
		if err := json.Unmarshal(line, &g); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all[g.Case] = g
	}
	return all
}

// Whatever befalls the cases of a kernel, they are named with what happened, and all
// others run.
func TestHarm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		harm string
		end  Outcome
		why  string
	}{
		{"wrong glu", Failed, "out: value 0 is "},
		{"outside glu", Failed, "byte 4095 behind operand -1"},
		{"lost glu", Lost, "an address that it may not"},
		{"crash glu", Crashed, "exit status 42, farewell"},
		{"panic glu", Crashed, "exit status 2, panic: no more"},
		{"silent glu", Crashed, "it wrote nothing for"},
		{"hang glu", Hung, "the work has not ended after"},
	} {
		t.Run(c.harm, func(t *testing.T) {
			t.Parallel()
			o := options(t, c.harm)
			o.Cases = []string{"smoke/driver", "compare/embed/type=bf16,hidden=8,*", "compare/glu/tokens=3,inner=8,silu", "compare/copy/bytes=16"}
			o.patience, o.silence = long, long
			switch c.harm {
			case "hang glu":
				o.patience = 3 * time.Second
			case "silent glu":
				o.patience, o.silence = 5*time.Second, 5*time.Second
			}
			got, err := outcomes(t, o)
			if !errors.Is(err, ErrFailures) {
				t.Errorf("Run() = %v", err)
			}
			for name, r := range got {
				want := Passed
				if strings.Contains(name, "/glu/") {
					want = c.end
				}
				if r.End != want || want != Passed && (!strings.Contains(r.Why, c.why) || r.Device != "Fake H200") {
					t.Errorf("%s: %s %q", name, r.End, r.Why)
				}
			}
			if len(got) != 5 {
				t.Errorf("%d cases have results", len(got))
			}
		})
	}
}

// A device that the engine loses is lost, too.
func TestLostEngine(t *testing.T) {
	t.Parallel()
	o := options(t, "lost glu")
	o.Cases = []string{"answers/tokens", "ipc"}
	got, err := outcomes(t, o)
	if r := got["answers/tokens"]; !errors.Is(err, ErrFailures) || r.End != Lost || !strings.Contains(r.Why, "an address that it may not") || got["ipc/copy"].End != Passed {
		t.Errorf("%v, %v", got, err)
	}
}

// What has a result is not run again, but for who asks; what was cut off is.
func TestResume(t *testing.T) {
	t.Parallel()
	o := options(t, "none")
	o.Cases = []string{"smoke/driver", "smoke/memory"}
	if _, err := outcomes(t, o); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(o.Out, ResultsFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := bytes.Cut(whole, []byte("\n"))
	// The second line is cut off, as if the machine had been taken away.
	cut := append(append(bytes.Clone(first), '\n'), second[:len(second)/2]...)
	if err := os.WriteFile(path, cut, 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := outcomes(t, o)
	if err != nil || len(got) != 2 || got["smoke/memory"].End != Passed {
		t.Errorf("after a cut: %v, %v", got, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(text, cut) || bytes.Count(text, []byte(`"smoke/driver"`)) != 1 || bytes.Count(text, []byte(`{"case":"smoke/memory"`)) != 2 {
		t.Errorf("results are\n%s", text)
	}
	before := got["smoke/driver"].Date
	o.Again = true
	if got, err = outcomes(t, o); err != nil || !got["smoke/driver"].Date.After(before) {
		t.Errorf("again: %v, %v", got["smoke/driver"], err)
	}
}

// A run that is ended leaves what it has, and a case that was begun has no result.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	o := options(t, "silent glu")
	o.Cases = []string{"compare/embed/type=bf16,hidden=8,*", "compare/glu/tokens=3,inner=8,*"}
	o.silence = long
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var seen progress
	seen.line = func(s string) {
		if strings.Contains(s, "compare/embed/type=bf16,hidden=8,scale=1") {
			cancel()
		}
	}
	o.Progress = &seen
	if err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("Run() = %v", err)
	}
	all, err := Results(o.Out)
	if err != nil || len(all) != 1 || all[0].End != Passed { // each kernel once, before any other shapes
		t.Errorf("results %+v, %v", all, err)
	}
	o.environment = options(t, "none").environment
	if got, err := outcomes(t, o); err != nil || len(got) != 4 {
		t.Errorf("after it: %d results, %v", len(got), err)
	}
}

// progress calls a function for each line.
type progress struct{ line func(string) }

func (p *progress) Write(b []byte) (int, error) {
	p.line(string(b))
	return len(b), nil
}

// A limit of time ends a run, with what it has.
func TestLimit(t *testing.T) {
	t.Parallel()
	o := options(t, "silent embed")
	o.Cases, o.Limit, o.silence = []string{"smoke/driver", "compare/embed"}, 10*time.Second, long
	got, err := outcomes(t, o)
	if !errors.Is(err, context.DeadlineExceeded) || got["smoke/driver"].End != Passed || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestUnusable(t *testing.T) {
	o := options(t, "unusable")
	if _, err := outcomes(t, o); !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "there is none in this test") {
		t.Errorf("without a driver: %v", err)
	}
	o = options(t, "none")
	o.Device = 3
	if _, err := outcomes(t, o); !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "no device 3, there are 1") {
		t.Errorf("a device that is not there: %v", err)
	}
	o.Child = []string{"/nowhere/dynamod"}
	if _, err := outcomes(t, o); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no program: %v", err)
	}
}

func TestChoice(t *testing.T) {
	for _, c := range []struct {
		phases, cases []string
		want          int
		err           string
	}{
		{nil, nil, len(Cases()), ""},
		{[]string{"ipc"}, nil, 1, ""},
		{nil, []string{"measure/gemm/*/lm-head/tokens=1"}, 3, ""},
		{nil, []string{"measure/gemm/*/lm-head/tokens=1", "ipc"}, 4, ""},
		{[]string{"ipc"}, []string{"smoke/driver"}, 0, ""},
		{[]string{"ipc"}, []string{"smoke/drive"}, 0, `no case matches "smoke/drive"`},
		{[]string{"smok"}, nil, 0, `phase "smok", there are smoke, compare`},
		{nil, []string{"measure/gemm/qwen3-8b/qkv/tokens=1/more"}, 0, "no case matches"},
		{nil, []string{"["}, 0, "no case matches"},
	} {
		got, err := choose(c.phases, c.cases)
		if (c.err == "") != (err == nil) || err != nil && (!errors.Is(err, ErrChoice) || !strings.Contains(err.Error(), c.err)) || len(got) != c.want {
			t.Errorf("%q %q: %d cases, %v", c.phases, c.cases, len(got), err)
		}
	}
	seen := map[string]bool{}
	for _, c := range Cases() {
		if seen[c.Name] || strings.ContainsAny(c.Name, " \t'\"") {
			t.Errorf("case %q", c.Name)
		}
		seen[c.Name] = true
	}
	for _, s := range Shapes() {
		if !seen[s.Case] {
			t.Errorf("the shape of %s is that of no case", s.Case)
		}
	}
}
