package bench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Options replace what they name; what is not on an axis stays the same.
func TestScaleOptions(t *testing.T) {
	full := fullScale().fleet
	sc, err := full.with(ScaleOptions{})
	if err != nil || !reflect.DeepEqual(sc, full) {
		t.Errorf("no options gave %+v, %v", sc, err)
	}
	sc, err = full.with(ScaleOptions{
		Axes: []string{axisNodes}, Points: map[string][]int{axisWorkers: {8, 2, 8}, axisFrontends: {6}}, Workers: 5, Processes: 3, KVBlocks: 7,
		Idle: time.Second, Timeout: 2 * time.Second, Rounds: 4,
	})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(sc.axes, []string{axisNodes}) || !reflect.DeepEqual(sc.points[axisWorkers], []int{2, 8}) ||
		sc.blocks != 7 || sc.idle != time.Second || sc.timeout != 2*time.Second || sc.turns.rounds != 4 {
		t.Errorf("%+v", sc)
	}
	for _, tc := range []struct {
		axis string
		at   int
		want fleetSpec
	}{
		{axisWorkers, 8, fleetSpec{8, 1, 3, 3}}, {axisFrontends, 2, fleetSpec{5, 2, 6, 3}}, {axisNodes, 2, fleetSpec{5, 1, 2, 2}}, {axisNodes, 9, fleetSpec{5, 1, 9, 3}},
	} {
		if got := sc.fleet(tc.axis, tc.at); got != tc.want {
			t.Errorf("%d %s: %+v, want %+v", tc.at, tc.axis, got, tc.want)
		}
	}
	for _, o := range []ScaleOptions{
		{Axes: []string{"racks"}}, {Points: map[string][]int{axisWorkers: {0}}}, {Points: map[string][]int{axisNodes: {1, mostNodes + 1}}},
		{Workers: -1}, {Processes: mostProcesses + 1}, {KVBlocks: -2}, {Rounds: 101}, {Idle: -1}, {Timeout: -1},
	} {
		if _, err := full.with(o); !errors.Is(err, ErrChoice) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// A tiny fleet has all figures. Processor times may be missing: they are only there if work
// stands out from an idle fleet, which is measured for a short time here.
func TestScale(t *testing.T) {
	dir := t.TempDir()
	r, err := run(t.Context(), Options{Sections: []string{SectionScale}, StateDir: dir, Child: []string{os.Args[0], asChild}}, smokeScale())
	if err != nil {
		t.Fatal(err)
	}
	sec := r.Sections[0]
	if len(sec.Failures) > 0 || len(sec.Tables) != 1 || len(sec.Plots) != 1 || len(sec.Fits) > 0 {
		t.Fatalf("%+v", sec)
	}
	checkTable(t, sec.Tables[0])
	got := map[string]float64{}
	for _, row := range sec.Tables[0].Rows {
		got[row.Name] = row.Figures["2"].Median
	}
	for _, c := range fleetColumns() {
		v, there := got[c.Title]
		switch c.Key {
		case keyCPURequest, keyScrapeCPU, keyChangeCPU, keyReplaceCPU, keyWrites, keyFiles:
		default:
			if !there || v <= 0 {
				t.Errorf("%s: %g, %t", c.Title, v, there)
			}
		}
	}
	if v := got["series of /metrics"]; v < 100 {
		t.Errorf("%g series", v)
	}
	checkClean(t, dir)
}

// A point that fails is in the report, with what was measured of the others.
func TestScaleReportsFailures(t *testing.T) {
	t.Parallel()
	sc := smokeScale()
	sc.fleet.timeout = time.Nanosecond
	r, err := run(t.Context(), Options{Sections: []string{SectionScale}, StateDir: t.TempDir(), Child: []string{os.Args[0], asChild}}, sc)
	if err != nil {
		t.Fatal(err)
	}
	sec := r.Sections[0]
	if len(sec.Failures) != 1 || !strings.HasPrefix(sec.Failures[0], "2 workers: ") || !strings.Contains(sec.Failures[0], errPointLate.Error()) {
		t.Errorf("failures: %q", sec.Failures)
	}
	if text := string(r.Markdown()); !strings.Contains(text, "- **Failed**: 2 workers: ") {
		t.Errorf("not in the report:\n%s", text)
	}
	_, err = run(t.Context(), Options{Sections: []string{SectionScale}, StateDir: t.TempDir()}, sc)
	if !errors.Is(err, errNoChild) {
		t.Errorf("without a program for children: %v", err)
	}
}

// An order has ended when its successor stands alone.
func TestSettled(t *testing.T) {
	run := cluster.Assignment{Desire: cluster.DesireRun}
	ordered, next, leaving := run, run, run
	ordered.Replace, next.Replaces, leaving.Desire = true, "a", cluster.DesireRemove
	for _, tc := range []struct {
		all                []cluster.Assignment
		successor, settled bool
	}{
		{[]cluster.Assignment{run, run}, false, true},
		{[]cluster.Assignment{ordered, run}, false, false},
		{[]cluster.Assignment{run, next}, true, false},
		{[]cluster.Assignment{run, leaving}, false, false},
		{[]cluster.Assignment{run}, false, false},
		{[]cluster.Assignment{run, run, run}, false, false},
	} {
		all := map[string]cluster.Assignment{}
		for i, a := range tc.all {
			all[cluster.WorkerName(i+1)] = a
		}
		if successor(all, "a") != tc.successor || successor(all, "b") || settled(all, 2) != tc.settled {
			t.Errorf("%+v: want successor %t, settled %t", tc.all, tc.successor, tc.settled)
		}
	}
}

// A process that ends early leaves its exit status in the error.
func TestFleetProcessEnds(t *testing.T) {
	s, err := newSession(Options{StateDir: t.TempDir(), Child: []string{os.Args[0], asChild}}, smokeScale())
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.startFleet(t.Context(), filepath.Join(s.tmp, "fleet"), fleetSpec{workers: 1, frontends: 1, nodes: 1, processes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer f.kill()
	if _, err := f.ask(t.Context(), "weather"); err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("got %v", err)
	}
	if _, err := f.ask(t.Context(), askCPU); err == nil {
		t.Error("it answered after its end")
	}
}

func TestTransposed(t *testing.T) {
	got := Table{
		Name: "n", About: "a.", Columns: []Column{{"x", "X, ms", "help"}, {"y", "Y", ""}, {"unused", "Z", "more"}},
		Rows: []Row{{"2", map[string]Figure{"x": {1, 1, 1, 1}, "y": {2, 2, 2, 1}}}, {"8", map[string]Figure{"y": {3, 3, 3, 1}}}},
	}.transposed()
	want := Table{
		Name: "n", About: "a.\n*X, ms*: help.", Columns: []Column{{"2", "2", ""}, {"8", "8", ""}},
		Rows: []Row{{"X, ms", map[string]Figure{"2": {1, 1, 1, 1}}}, {"Y", map[string]Figure{"2": {2, 2, 2, 1}, "8": {3, 3, 3, 1}}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestQuadratic(t *testing.T) {
	fits := []Fit{{Figure: "a", Axis: axisWorkers, Dominant: termQuadratic}, {Figure: "b", Axis: axisNodes, Dominant: termLinear}}
	if got := quadratic(fits); len(got) != 1 || !strings.HasSuffix(got[0], "quadratic term: a over workers.") {
		t.Errorf("%q", got)
	}
	if got := quadratic(nil); got != nil {
		t.Errorf("without laws: %q", got)
	}
	if got := quadratic(fits[1:]); len(got) != 1 || !strings.HasPrefix(got[0], "No figure") {
		t.Errorf("%q", got)
	}
}

func TestSeriesValue(t *testing.T) {
	page := []byte("# HELP a b\na_x{direction=\"in\"} 5\na{direction=\"in\"} 1.5e+06\na{direction=\"out\"} 7\n")
	for label, want := range map[string]float64{`direction="in"`: 1.5e6, `direction="out"`: 7} {
		if v, err := seriesValue(page, "a", label); err != nil || v != want {
			t.Errorf("%s: %g, %v, want %g", label, v, err, want)
		}
	}
	if _, err := seriesValue(page, "b", "direction"); !errors.Is(err, errNoSeries) {
		t.Errorf("got %v", err)
	}
}

// Points lie where their values are, whatever is in a title, and what is zero has no place.
func TestPanelsSVG(t *testing.T) {
	svg := Plot{Title: "a <b>", Panels: []Panel{
		{"<c>", []PanelPoint{{1, Figure{10, 10, 10, 1}}, {100, Figure{1000, 500, 1000, 2}}}, Law{{termLinear, 10}}},
		{"zero", []PanelPoint{{1, Figure{0, 0, 0, 1}}}, nil},
		{"one", []PanelPoint{{5, Figure{3, 3, 3, 1}}}, nil},
	}}.SVG()
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, svg)
		}
	}
	for _, want := range []string{
		`width="818" height="210"`, `&lt;c&gt;`, `nothing above 0`, `>1,000<`,
		`<circle cx="52.0" cy="156.0"`, `<circle cx="256.0" cy="26.0"`, // the corners
		`points="52.0,156.0 `, ` 256.0,26.0 "`,
		`<circle cx="154.0" cy="91.0"`, // one point is in the middle
	} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no %s in\n%s", want, svg)
		}
	}
}
