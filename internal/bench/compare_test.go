package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/bench/stats"
)

// reportOf sums up requests whose first token came after so many milliseconds.
func reportOf(ttft ...int) *Report {
	tl := newTally(1000, 0)
	for i, v := range ttft {
		r := record()
		r.Due, r.Sent, r.First = time.Duration(i)*time.Second, time.Duration(i)*time.Second, time.Duration(i)*time.Second+time.Duration(v)*time.Millisecond
		r.Last, r.End = r.First+120*time.Millisecond, r.First+140*time.Millisecond
		tl.add(r, true)
	}
	return &Report{
		Version: Version, Model: "m", Result: tl.result(time.Duration(len(ttft))*time.Second, SLO{TTFT: time.Second}), points: tl.points,
		sorted: map[string][]float64{"ttft": tl.ttft.Sorted(), "itl": tl.itl.Sorted()},
	}
}

// around are n whole numbers around a middle.
func around(middle, n int) (out []int) {
	for i := range n {
		out = append(out, middle-n/2+i)
	}
	return out
}

func figure(t *testing.T, c Comparison, name string) Difference {
	t.Helper()
	i := slices.IndexFunc(c.Figures, func(d Difference) bool { return d.Name == name })
	if i < 0 {
		t.Fatalf("no %s in %+v", name, c)
	}
	return c.Figures[i]
}

func TestCompare(t *testing.T) {
	a := reportOf(around(200, 40)...)
	for name, tc := range map[string]struct {
		b    *Report
		want Verdict
		of   string
	}{
		"far":        {reportOf(around(300, 40)...), Differs, "ttft_p50_ms"},
		"near":       {reportOf(around(203, 40)...), Alike, "ttft_p50_ms"},
		"itself":     {a, Alike, "ttft_mean_ms"},
		"few values": {reportOf(300, 301), Unsure, "ttft_p50_ms"},
		"the tail":   {reportOf(around(300, 40)...), Unsure, "ttft_p99_ms"}, // no upper bound of the lower one
	} {
		c := Compare(a, tc.b)
		d := figure(t, c, tc.of)
		if d.Verdict != tc.want || d.Ratio == nil || math.Abs(*d.Ratio - *d.B / *d.A) > 1e-12 {
			t.Errorf("%s: %+v", name, d)
		}
		if back := figure(t, Compare(tc.b, a), tc.of); back.Verdict != tc.want {
			t.Errorf("%s, the other way: %+v", name, back)
		}
	}
	c := Compare(a, reportOf(around(300, 40)...))
	if d := figure(t, c, "requests_per_s"); *d.A != 1 || *d.B != 1 || d.Verdict != "" {
		t.Errorf("%+v", d)
	}
	if d := figure(t, c, "good_share"); *d.A != 1 || d.Verdict != Alike {
		t.Errorf("%+v", d)
	}
	if d := figure(t, c, "itl_p50_ms"); *d.Ratio != 1 || d.Verdict != Alike {
		t.Errorf("%+v", d)
	}
	if len(c.Unequal) != 0 {
		t.Errorf("unequal: %q", c.Unequal)
	}
	b := reportOf()
	b.Model, b.Load.Arrivals, b.Failed, b.Requests = "n", "5 requests/s", 9, 10
	c = Compare(a, b)
	if d := figure(t, c, "ttft_p50_ms"); d.A == nil || d.B != nil || d.Ratio != nil || d.Verdict != "" {
		t.Errorf("%+v", d)
	}
	if d := figure(t, c, "failed_share"); *d.B != 0.9 || d.Ratio != nil || d.Verdict != Differs {
		t.Errorf("%+v", d)
	}
	if len(c.Unequal) != 2 || c.Unequal[0] != "model: m, and n" {
		t.Errorf("unequal: %q", c.Unequal)
	}
	if text, err := json.Marshal(c); err != nil {
		t.Errorf("%s, %v", text, err)
	}
}

func TestSharesThatDiffer(t *testing.T) {
	for _, tc := range []struct {
		n1, of1, n2, of2 int
		want             Verdict
	}{{0, 100, 0, 50, Alike}, {10, 100, 20, 100, Differs}, {10, 100, 19, 100, Alike}, {100, 100, 90, 90, Alike}, {1, 2, 1, 1, Alike}} {
		if got := judgeShares(tc.n1, tc.of1, tc.n2, tc.of2); got != tc.want {
			t.Errorf("%d of %d and %d of %d: %s", tc.n1, tc.of1, tc.n2, tc.of2, got)
		}
	}
}

// A report survives its JSON form.
func TestRead(t *testing.T) {
	a := reportOf(around(200, 40)...)
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Read(bytes.NewReader(text))
	if err != nil || *b.TTFT.P50.High != *a.TTFT.P50.High || b.TTFT.P99.High != nil || b.Requests != 40 {
		t.Fatalf("%+v, %v", b, err)
	}
	again, err := json.Marshal(b)
	if err != nil || !bytes.Equal(again, text) {
		t.Errorf("%v\n%s\n%s", err, text, again)
	}
	for text, want := range map[string]string{
		`{}`: "no version", `{"version":2}`: "its version is 2", `[`: "no report", `[]`: "no report", `{"version":1,"ttft_ms":"x"}`: "no report",
		strings.Repeat(" ", maxReport+1): "more than 16777216 bytes",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20s: %v, want %q", text, err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	text, _ := json.Marshal(reportOf(around(200, 40)...))
	f.Add(text)
	f.Add([]byte(`{"version":1,"ttft_ms":{"p50":{"value":1e308,"low":null}},"requests":-1,"goodput":{}}`))
	a := reportOf(around(100, 20)...)
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		Compare(a, b)
		Compare(b, a)
	})
}

// The plot is well-formed, shows each request, and stays on its canvas.
func TestSVG(t *testing.T) {
	r := reportOf(around(200, 40)...)
	r.Model, r.Load.Arrivals = "<m & n>", "5 requests/s"
	var b strings.Builder
	if err := r.SVG(&b); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(strings.NewReader(b.String()))
	dots := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
			dots++
		}
	}
	if dots != 80 || strings.Count(b.String(), "<polyline") != 2 || !strings.Contains(b.String(), "&lt;m &amp; n&gt; · 5 requests/s") {
		t.Errorf("%d dots:\n%s", dots, b.String())
	}
	// The highest dot is that of 219 ms at 39 s, on an axis to 250 ms and to 40 s.
	if want := `<circle cx="434.3" cy="53.1"`; !strings.Contains(b.String(), want) {
		t.Errorf("no %s", want)
	}
	b.Reset()
	if err := (&Report{}).SVG(&b); err != nil || strings.Count(b.String(), "nothing to show") != 4 || strings.Contains(b.String(), "NaN") {
		t.Errorf("of nothing: %v\n%s", err, b.String())
	}
}

func TestTicks(t *testing.T) {
	for _, tc := range []struct{ most, step, end float64 }{{219, 50, 250}, {1, 0.2, 1}, {0, 1, 1}, {5, 1, 5}, {0.003, 0.001, 0.003}, {61234, 20000, 80000}} {
		if step, end := ticks([]float64{0, tc.most}); math.Abs(step-tc.step) > 1e-9 || math.Abs(end-tc.end) > 1e-9 {
			t.Errorf("%v: step %v to %v", tc.most, step, end)
		}
	}
}

// A client that was late says so, and only then.
func TestJudgeOfTheClient(t *testing.T) {
	summary := func(v float64) *stats.Summary {
		return &stats.Summary{P50: stats.Figure{Value: v}, P99: stats.Figure{Value: v}}
	}
	for _, tc := range []struct {
		late, lag, ttft float64
		held, want      int
	}{{0, 0, 5, 0, 0}, {10, 10, 5, 0, 0}, {10.1, 0, 5, 0, 1}, {10.1, 0, 200, 0, 0}, {20.1, 20.1, 200, 0, 2}, {0, 0, 5, 1, 1}} {
		c := Client{Late: summary(tc.late), Lag: summary(tc.lag), Held: tc.held}
		if c.judge(summary(tc.ttft)); len(c.Limited) != tc.want {
			t.Errorf("%+v: %q", tc, c.Limited)
		}
	}
	c := Client{Late: summary(11)}
	if c.judge(nil); len(c.Limited) != 1 {
		t.Errorf("without an answer: %q", c.Limited)
	}
}
