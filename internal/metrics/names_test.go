package metrics

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// everything returns a registry with all metrics of a node, each with one series.
func everything(t *testing.T) *Registry {
	t.Helper()
	r := NewRegistry()
	zero := func() float64 { return 0 }
	NewFrontend(r)
	NewKVIndex(r, zero, zero)
	NewReplicaSync(r, zero)
	NewWorker(r, WorkerLabels{}, time.Now())
	NewNIXL(r, "a", nil)
	NewGPUs(r)
	NewNode(r)
	NewPlanner(r)
	SetNATS(r, func() (in, out int64) { return 0, 0 })
	for name, f := range r.families {
		values := make([]string, len(f.labels))
		switch c := f.collector.(type) {
		case *CounterVec:
			c.WithLabelValues(values...)
		case *GaugeVec:
			c.WithLabelValues(values...)
		case *HistogramVec:
			c.WithLabelValues(values...)
		case *HistogramSnapshotVec:
			c.Set(make([]uint64, len(c.bounds)+1), 0, values...)
		case *FuncVec:
			c.Set(zero, values...)
		default:
			t.Fatalf("%s is a %T", name, c)
		}
	}
	return r
}

func TestRegistry(t *testing.T) {
	r := NewRegistry()
	first, second := r.counter("x_total", "x", "a"), r.counter("x_total", "x", "a")
	if first != second {
		t.Error("the same counter twice is two counters")
	}
	g := r.gaugeFunc("g", "g", "a")
	g.Set(func() float64 { return 1 }, "v")
	g.Set(func() float64 { return 2 }, "v") // replaces
	rec := httptest.NewRecorder()
	r.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if body := rec.Body.String(); !strings.Contains(body, "\ng{a=\"v\"} 2\n") {
		t.Error(body)
	}
	for name, f := range map[string]func(){
		"other labels": func() { r.counter("x_total", "x", "b") },
		"other type":   func() { r.gauge("x_total", "x", "a") },
		"label count":  func() { g.Set(func() float64 { return 0 }, "a", "b") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

// Names outlive releases, so their form is checked by the rules of promtool: a prefix of
// ours, counters in _total, base units. What Dynamo names otherwise keeps its name.
func TestNames(t *testing.T) {
	dynamos := map[string]string{
		FrontendTokenizerLatency: "metric names should not contain abbreviated units", // Dynamo's dashboards ask for milliseconds
		PlannerDecodeWorkers:     "metric names should not contain abbreviated units", // "d" is decode, not days
		PlannerPredictedDecode:   "metric names should not contain abbreviated units", // likewise
		PlannerGPUHours:          `use base unit "seconds" instead of "hours"`,
	}
	families, err := everything(t).prom.Gather()
	if err != nil {
		t.Fatal(err)
	}
	form := regexp.MustCompile(`^dynamo_(frontend|component|nixl|gpu|node|planner)_[a-z0-9]+(_[a-z0-9]+)*$`)
	for _, f := range families {
		if !form.MatchString(f.GetName()) {
			t.Errorf("%s is no name of ours", f.GetName())
		}
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if dynamos[p.Metric] == p.Text {
			delete(dynamos, p.Metric)
			continue
		}
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for name := range dynamos {
		t.Errorf("%s is excepted and needs no exception", name)
	}
}

// The manual has every metric and no other, and the table of names too.
func TestManual(t *testing.T) {
	names, err := os.ReadFile("names.go")
	if err != nil {
		t.Fatal(err)
	}
	prefix := map[string]string{"Frontend": PrefixFrontend, "Component": PrefixComponent, "NIXL": PrefixNIXL, "GPU": PrefixGPU, "Node": PrefixNode, "Planner": PrefixPlanner}
	exist := everything(t).families
	var constants []string
	for _, m := range regexp.MustCompile(`= Prefix(\w+) +\+ "(\w+)"`).FindAllStringSubmatch(string(names), -1) {
		name := prefix[m[1]] + m[2]
		constants = append(constants, name)
		if _, ok := exist[name]; !ok {
			t.Errorf("%s has a constant and is made by nobody", name)
		}
	}
	rows := map[string]int{}
	for _, file := range []string{"metrics.md", "scheduling.md"} {
		b, err := os.ReadFile(filepath.Join("..", "..", "docs", file))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			for _, name := range regexp.MustCompile("`dynamo_(?:frontend|component|nixl|gpu|node|planner)_[a-z_]*[a-z]`").FindAllString(line, -1) {
				if _, ok := exist[strings.Trim(name, "`")]; !ok {
					t.Errorf("%s is in %s and does not exist", name, file)
				}
				if cells := strings.Split(line, "|"); len(cells) > 2 && strings.Contains(cells[1], name) {
					rows[strings.Trim(name, "`")]++
				}
			}
		}
	}
	for name := range exist {
		if rows[name] != 1 {
			t.Errorf("%s has %d rows in the manual", name, rows[name])
		}
		if !slices.Contains(constants, name) {
			t.Errorf("%s has no constant in names.go", name)
		}
	}
}
