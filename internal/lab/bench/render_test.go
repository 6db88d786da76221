package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func sampleReport() *Report {
	return &Report{
		Host: Host{CPU: "Some | Processor", ISA: "avx2", Cores: 2, Procs: 2, MemoryBytes: 24 << 30, System: "linux/amd64", Go: "go1.26"},
		Run: RunInfo{
			Command: "dynlab bench all --quick", Version: "v1.2.3", Started: time.Date(2026, 11, 20, 18, 0, 5, 0, time.UTC),
			Took: 61*time.Second + 400*time.Millisecond, Quick: true, LoadBefore: 0.25, LoadAfter: 1.96,
		},
		Sections: []Section{
			{
				Name: "engine", Title: "Engine", About: "How it was measured.",
				Tables: []Table{
					{
						Name: "Model", About: "A model.",
						Columns: []Column{{"rate", "tokens/s", ""}, {"share", "% of limit", "against the limit"}},
						Rows: []Row{
							{"read, all cores", map[string]Figure{"rate": {12345, 12000, 13000, 3}}},
							{"decode", map[string]Figure{"rate": {20.5, 19.87, 21.25, 3}, "share": {79.1, 78, 80.25, 2}}},
						},
					},
					{Name: "Single", Columns: []Column{{"v", "value", ""}}, Rows: []Row{{"once", map[string]Figure{"v": {1, 1, 1, 1}}}}},
				},
				Notes: []string{"Something was left out.", "So was another."},
			},
			{Name: "plane", Title: "Planes", About: "Nothing.", Tables: []Table{{Name: "Empty", Columns: []Column{{"v", "value", ""}}}}},
		},
	}
}

func TestGolden(t *testing.T) {
	r := sampleReport()
	text, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	unknown := sampleReport()
	unknown.Host, unknown.Run.LoadBefore, unknown.Run.Quick, unknown.Sections = Host{CPU: "unknown"}, -1, false, nil
	busy := sampleReport()
	busy.Run.LoadBefore, busy.Sections = 3.5, nil
	for name, got := range map[string][]byte{
		"report.md": r.Markdown(), "report.json": text, "unknown.md": unknown.Markdown(), "busy.md": busy.Markdown(),
	} {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s differs, run with -update and look:\n%s", name, got)
		}
	}
}

func TestJSONRoundTrip(t *testing.T) {
	want := sampleReport()
	text, err := want.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var got Report
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(&got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestThisHost(t *testing.T) {
	h := thisHost()
	if h.CPU == "" || h.ISA == "" || h.Cores < 1 || h.Procs < 1 || h.MemoryBytes < 0 || h.System == "" || h.Go == "" {
		t.Errorf("%+v", h)
	}
}
