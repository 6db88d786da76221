package gpucheck

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
)

// recorded writes a folder of results.
func recorded(t *testing.T, results []Result, goldens ...Golden) string {
	t.Helper()
	dir := t.TempDir()
	f, err := openFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if err := f.add(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range goldens {
		if err := line(f.goldens, g); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// anOutput is an output of float32 with a tolerance of half a unit of bf16: 2^-8 beside 1.
func anOutput(sum string, v ...any) Sample {
	return Sample{Name: "out", Bytes: 4 * len(v), SHA256: sum, Values: v, Near: &Near{Ulps: 0.5, Scale: 1}}
}

// What the outputs of two runs differ by is told, and is an error where it is more than twice
// what each may be off.
func TestCompareOutputs(t *testing.T) {
	exact := Sample{Name: "out", Bytes: 2, SHA256: "1", Values: []any{1.0}}
	other := exact
	other.SHA256 = "2"
	for name, c := range map[string]struct {
		a, b Sample
		want string // of what is beyond; "same" and "near" for what is not
	}{
		"same bits":       {anOutput("1", 1.0), anOutput("1", 1.0), "same"},
		"near":            {anOutput("1", 1.0, "NaN"), anOutput("2", 1+1.9/256, "NaN"), "near"},
		"too far":         {anOutput("1", 1.0), anOutput("2", 1+5.0/256), "has 1 in A and 1.01953125 in B, 2.5 times"},
		"no number":       {anOutput("1", 1.0), anOutput("2", "NaN"), "has 1 in A and NaN in B"},
		"whole numbers":   {exact, other, "has other bytes"},
		"of another size": {anOutput("1", 1.0), anOutput("2", 1.0, 1.0), "of 4 bytes is out of 8 in B"},
	} {
		a, b := recorded(t, nil, Golden{Case: "x", Outputs: []Sample{c.a}}), recorded(t, nil, Golden{Case: "y", Outputs: []Sample{c.a}}, Golden{Case: "x", Outputs: []Sample{c.b}})
		text, err := CompareRuns(a, b)
		want := map[string]string{"same": "1 cases have the same bits, 0 others", "near": "0 cases have the same bits, 1 others"}[c.want]
		if want == "" {
			want = c.want
		}
		if errors.Is(err, ErrDiffers) != (want == c.want) || !strings.Contains(string(text), want) || !strings.Contains(string(text), "0 are in A only, 1 in B only") {
			t.Errorf("%s: %v, want %q in\n%s", name, err, want, text)
		}
	}
}

// A sample's tolerance is that of its case.
func TestSampleNear(t *testing.T) {
	if n := sample(kerneltest.Output{Memory: make([]byte, 4), Near: kerneltest.OneUlp}).Near; n == nil || *n != (Near{1, 1e-3}) {
		t.Errorf("%+v", n)
	}
	if n := sample(kerneltest.Output{Memory: make([]byte, 4), Near: kerneltest.Exact}).Near; n != nil {
		t.Errorf("bytes that count have %+v", n)
	}
}

// anAnswer says tokens, of which each is as likely as given and the token 9 takes the rest.
func anAnswer(p float64, tokens ...uint32) Answer {
	a := Answer{Tokens: tokens}
	for _, token := range tokens {
		a.Top = append(a.Top, []Likely{{token, math.Log(p)}, {9, math.Log(1 - p)}})
	}
	return a
}

// Answers are compared up to where they part, with the divergence at each place.
func TestCompareAnswers(t *testing.T) {
	// 0.5 ln(0.5/0.4) + 0.5 ln(0.5/0.6)
	const apart = 0.020410997260127586
	if d := divergence(anAnswer(0.5, 1).Top[0], anAnswer(0.4, 1).Top[0]); math.Abs(d-apart) > 1e-12 {
		t.Errorf("the divergence is %g", d)
	}
	// Tokens that only one has count as one: 0.5 and the rest of 0.5.
	if d := divergence(anAnswer(0.5, 1).Top[0], []Likely{{1, math.Log(0.4)}, {7, math.Log(0.6)}}); math.Abs(d-apart) > 1e-12 {
		t.Errorf("the divergence of the rest is %g", d)
	}
	long := make([]uint32, 200)
	said := func(answers ...Answer) string {
		return recorded(t, nil, Golden{Case: "tokens", Answers: answers})
	}
	for name, c := range map[string]struct {
		a, b  string
		fails bool
		want  string
	}{
		"the same":  {said(anAnswer(0.9, 1, 2)), said(anAnswer(0.9, 1, 2)), false, "At 2 of 2 places the most likely token is the same, 100.0 %."},
		"they part": {said(anAnswer(0.9, 1, 2, 3, 4)), said(anAnswer(0.9, 1, 5, 3, 4)), true, "At 1 of 2 places"},
		"one place of two hundred and one": {
			said(anAnswer(0.9, long...), anAnswer(0.9, 5)), said(anAnswer(0.9, long...), anAnswer(0.9, 6)), false, "- question 1 at token 0: 5 in A and 6 in B",
		},
		"other logits": {said(anAnswer(0.5, 1)), said(anAnswer(0.4, 1)), true, "is 0.02 nats in the mean and 0.02 at most"},
		"nearly":       {said(anAnswer(0.5, 1)), said(anAnswer(0.49, 1)), false, "is 0.0002 nats"},
		"none":         {said(anAnswer(0.5, 1)), recorded(t, nil, Golden{Case: "x"}), false, "There are none in both runs."},
	} {
		text, err := CompareRuns(c.a, c.b)
		if errors.Is(err, ErrDiffers) != c.fails || err != nil && !c.fails || !strings.Contains(string(text), c.want) {
			t.Errorf("%s: %v, want %q in\n%s", name, err, c.want, text)
		}
	}
}

// Figures stand beside each other with their ratios, and cases that ended otherwise are named.
func TestCompareFigures(t *testing.T) {
	measured := func(name string, figure float64, end Outcome) Result {
		return Result{Case: name, Phase: "measure", End: end, Figure: figure, Unit: "us", About: About{Device: "NVIDIA H200", Capability: "9.0", CUDA: "13.0", Build: "dynamod v1"}}
	}
	a := recorded(t, []Result{measured("measure/gemv/x", 10, Passed), measured("measure/gemv/y", 10, Passed), measured("measure/gemm/x", 3, Passed)})
	b := recorded(t, []Result{measured("measure/gemv/x", 20, Passed), measured("measure/gemv/y", 5, Passed), measured("measure/gemm/x", 4, Hung)})
	out, err := CompareRuns(a, b)
	text := string(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| measure/gemv, us | 2 | 1.000 |\n", "- `measure/gemm/x`: pass in A, hang in B\n", "10  20  us  2.000  measure/gemv/x\n", "10   5  us  0.500  measure/gemv/y\n", "A is " + a, "- NVIDIA H200"} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q", want)
		}
	}
	if t.Failed() || strings.Contains(text, "measure/gemm, us") {
		t.Errorf("in\n%s", text)
	}
	if _, err := CompareRuns(a, t.TempDir()); err == nil || !strings.Contains(err.Error(), "has no results") {
		t.Errorf("an empty folder: %v", err)
	}
}
