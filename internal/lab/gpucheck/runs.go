package gpucheck

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
)

// ErrDiffers is returned for runs whose goldens are further apart than two that are right may
// be.
var ErrDiffers = errors.New("the runs differ by more than rounding")

// What answers of two runs may differ by: the share of places with another best token, and the
// mean divergence of the distributions there.
const (
	leastAgreement = 0.99
	mostDivergence = 1e-3
)

// run holds the contents of a folder of results.
type run struct {
	dir     string
	results []Result
	goldens []Golden // the latest of each case
}

func readRun(dir string) (r run, err error) {
	r.dir = dir
	if r.results, err = Results(dir); err != nil {
		return r, err
	}
	if r.goldens, err = Goldens(dir); err != nil {
		return r, err
	}
	if len(r.results) == 0 && len(r.goldens) == 0 {
		return r, fmt.Errorf("%s has no results: name a folder that gpu-check --out made", dir)
	}
	return r, nil
}

// Goldens returns the goldens in a folder, the latest of each case, as [Results] does.
func Goldens(dir string) ([]Golden, error) {
	return latest(filepath.Join(dir, GoldensFile), func(g *Golden) string { return g.Case })
}

func find(goldens []Golden, name string) int {
	return slices.IndexFunc(goldens, func(g Golden) bool { return g.Case == name })
}

// CompareRuns compares the results in two folders, as Markdown: of another GPU, driver or variant of
// the kernels. The error is ErrDiffers when outputs or answers are further apart than roundings
// bring them; figures are never an error.
func CompareRuns(a, b string) ([]byte, error) {
	first, err := readRun(a)
	if err != nil {
		return nil, err
	}
	second, err := readRun(b)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString("# Two checks of CUDA kernels\n")
	for i, r := range []run{first, second} {
		fmt.Fprintf(&out, "\n%c is %s:\n\n", 'A'+i, r.dir)
		if len(r.results) > 0 {
			writeAbout(&out, r.results)
		}
	}
	outputs := compareOutputs(first.goldens, second.goldens)
	outputs.write(&out)
	answers := compareAnswers(first.goldens, second.goldens)
	answers.write(&out)
	writeOutcomes(&out, first.results, second.results)
	writeRatios(&out, first.results, second.results)
	if len(outputs.beyond) > 0 || answers.beyond() {
		return out.Bytes(), ErrDiffers
	}
	return out.Bytes(), nil
}

// outputs counts the cases of a comparison of goldens, by result.
type outputs struct {
	same, near int
	beyond     []string // and how
	only       [2]int   // in one of the runs
}

func compareOutputs(a, b []Golden) (o outputs) {
	for _, g := range a {
		i := find(b, g.Case)
		switch {
		case len(g.Outputs) == 0:
		case i < 0:
			o.only[0]++
		default:
			o.add(g, b[i])
		}
	}
	for _, g := range b {
		if len(g.Outputs) > 0 && find(a, g.Case) < 0 {
			o.only[1]++
		}
	}
	return o
}

// add compares a case.
func (o *outputs) add(a, b Golden) {
	if len(a.Outputs) != len(b.Outputs) {
		o.beyond = append(o.beyond, fmt.Sprintf("`%s` has %d outputs in A and %d in B", a.Case, len(a.Outputs), len(b.Outputs)))
		return
	}
	same := true
	for i, x := range a.Outputs {
		y := b.Outputs[i]
		if x.Name == y.Name && x.Bytes == y.Bytes && x.SHA256 == y.SHA256 {
			continue
		}
		same = false
		if why := x.differs(y); why != "" {
			o.beyond = append(o.beyond, fmt.Sprintf("`%s`: %s %s", a.Case, x.Name, why))
			return
		}
	}
	if same {
		o.same++
	} else {
		o.near++
	}
}

// differs says what of an output is further apart than twice what each may be off; "" where
// nothing is.
func (s Sample) differs(other Sample) (why string) {
	switch {
	case s.Name != other.Name || s.Bytes != other.Bytes || len(s.Values) != len(other.Values):
		return fmt.Sprintf("of %d bytes is %s of %d in B", s.Bytes, other.Name, other.Bytes)
	case s.Near == nil || other.Near == nil:
		return "has other bytes"
	}
	worst := 0.0
	for i, v := range s.Values {
		x, isX := v.(float64)
		y, isY := other.Values[i].(float64)
		if !isX || !isY {
			if v != other.Values[i] {
				return fmt.Sprintf("has %v in A and %v in B", v, other.Values[i])
			}
			continue
		}
		near := kerneltest.Tolerance{Ulps: max(s.Near.Ulps, other.Near.Ulps), Scale: max(s.Near.Scale, other.Near.Scale)}
		if over := math.Abs(x-y) / (2 * near.Of(max(math.Abs(x), math.Abs(y)))); over > max(1, worst) {
			worst, why = over, fmt.Sprintf("has %g in A and %g in B, %.3g times what is tolerated", x, y, over)
		}
	}
	return why
}

func (o *outputs) write(out *bytes.Buffer) {
	out.WriteString("\n## Outputs\n\n")
	fmt.Fprintf(out, "%d cases have the same bits, %d others sampled values within their tolerances, %d do not.", o.same, o.near, len(o.beyond))
	if o.only != [2]int{} {
		fmt.Fprintf(out, " %d are in A only, %d in B only.", o.only[0], o.only[1])
	}
	out.WriteString("\n")
	for i, b := range o.beyond {
		if i == 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(out, "- %s\n", b)
	}
}

// answers compares greedy answers, up to where they part: behind it prompts are not the same.
type answers struct {
	places, agree int
	mean, most    float64 // Kullback-Leibler divergence of B from A
	parted        []string
}

func compareAnswers(a, b []Golden) (o answers) {
	for _, g := range a {
		i := find(b, g.Case)
		if i < 0 {
			continue
		}
		for n := range min(len(g.Answers), len(b[i].Answers)) {
			o.add(n, g.Answers[n], b[i].Answers[n])
		}
	}
	if o.places > 0 {
		o.mean /= float64(o.places)
	}
	return o
}

func (o *answers) add(question int, a, b Answer) {
	for at := range min(len(a.Tokens), len(b.Tokens), len(a.Top), len(b.Top)) {
		d := divergence(a.Top[at], b.Top[at])
		o.places, o.mean, o.most = o.places+1, o.mean+d, max(o.most, d)
		if a.Tokens[at] != b.Tokens[at] {
			o.parted = append(o.parted, fmt.Sprintf("question %d at token %d: %d in A and %d in B", question, at, a.Tokens[at], b.Tokens[at]))
			return
		}
		o.agree++
	}
}

// divergence is the Kullback-Leibler divergence, in nats, of the tokens that both lists have,
// and of all others as if they were one.
func divergence(a, b []Likely) (sum float64) {
	restA, restB := 1.0, 1.0
	for _, x := range a {
		i := slices.IndexFunc(b, func(y Likely) bool { return y.Token == x.Token })
		if i < 0 {
			continue
		}
		p := math.Exp(x.Logprob)
		sum += p * (x.Logprob - b[i].Logprob)
		restA, restB = restA-p, restB-math.Exp(b[i].Logprob)
	}
	const least = 1e-9 // a sum of twenty probabilities is no more exact
	if restA > least && restB > least {
		sum += restA * math.Log(restA/restB)
	}
	return max(0, sum)
}

func (o *answers) beyond() bool {
	return o.places > 0 && (float64(o.agree) < leastAgreement*float64(o.places) || !(o.mean <= mostDivergence))
}

func (o *answers) write(out *bytes.Buffer) {
	out.WriteString("\n## Answers\n\n")
	if o.places == 0 {
		out.WriteString("There are none in both runs.\n")
		return
	}
	fmt.Fprintf(out, "At %d of %d places the most likely token is the same, %.1f %%. The divergence of the distributions is %.2g nats in the mean and %.2g at most.\n",
		o.agree, o.places, 100*float64(o.agree)/float64(o.places), o.mean, o.most)
	for i, p := range o.parted {
		if i == 0 {
			out.WriteString("\nFirst differences of greedy answers:\n\n")
		}
		fmt.Fprintf(out, "- %s\n", p)
	}
}

// writeOutcomes lists cases that ended otherwise.
func writeOutcomes(out *bytes.Buffer, a, b []Result) {
	var lines []string
	for _, x := range a {
		i := slices.IndexFunc(b, func(y Result) bool { return y.Case == x.Case })
		if i >= 0 && b[i].End != x.End {
			lines = append(lines, fmt.Sprintf("- `%s`: %s in A, %s in B", x.Case, x.End, b[i].End))
		}
	}
	if len(lines) > 0 {
		out.WriteString("\n## Cases that ended otherwise\n\n" + strings.Join(lines, "\n") + "\n")
	}
}

// writeRatios lists the figures of both, and the geometric means of their ratios by kind.
func writeRatios(out *bytes.Buffer, a, b []Result) {
	var kinds []string
	logs := map[string][]float64{}
	var rows bytes.Buffer
	w := tabwriter.NewWriter(&rows, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "A\tB\t\tB / A\t  case\n")
	for _, x := range a {
		i := slices.IndexFunc(b, func(y Result) bool { return y.Case == x.Case })
		if i < 0 || x.Unit == "" || x.Unit != b[i].Unit || x.End != Passed || b[i].End != Passed || !(x.Figure > 0) || !(b[i].Figure > 0) {
			continue
		}
		fmt.Fprintf(w, "%.4g\t%.4g\t%s\t%.3f\t  %s\n", x.Figure, b[i].Figure, x.Unit, b[i].Figure/x.Figure, x.Case)
		kind := strings.Join(strings.SplitN(x.Case, "/", 3)[:min(2, strings.Count(x.Case, "/")+1)], "/") + ", " + x.Unit
		if logs[kind] == nil {
			kinds = append(kinds, kind)
		}
		logs[kind] = append(logs[kind], math.Log(b[i].Figure/x.Figure))
	}
	_ = w.Flush() // into memory
	if len(kinds) == 0 {
		return
	}
	out.WriteString("\n## Figures\n\n| kind | cases | B / A, geometric mean |\n|---|---:|---:|\n")
	for _, k := range kinds {
		var sum float64
		for _, l := range logs[k] {
			sum += l
		}
		fmt.Fprintf(out, "| %s | %d | %.3f |\n", k, len(logs[k]), math.Exp(sum/float64(len(logs[k]))))
	}
	fmt.Fprintf(out, "\n```\n%s```\n", rows.Bytes())
}
