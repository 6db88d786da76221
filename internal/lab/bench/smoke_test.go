package bench

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// smokeScale is as little as there can be of everything.
func smokeScale() scale {
	once := turns{1, 0}
	return scale{
		engine: engineScale{
			synthetic: model.Synthetic{Family: "qwen3", Layers: 1, DType: "bf16"}, cacheBytes: 1 << 10,
			prefill: []int{70}, sequences: []int{1, 2}, context: 65, window: time.Millisecond,
			caseLimit: time.Minute, readBytes: 1 << 20, builtin: once, large: turns{2, time.Minute},
		},
		path: pathScale{
			prompt: 70, output: 3, concurrency: []int{1, 2}, requests: 1, mockOutput: 8, mockStreams: []int{1, 4},
			mockAlone: 1, pace: time.Millisecond, pacedOutput: 4, pings: 3, turns: once,
		},
		nixl:  nixlScale{bytes: 1 << 20, shapes: []nixlShape{{64 << 10, 3}, {1 << 20, 1}}, pings: 3, turns: once},
		plane: planeScale{calls: 3, items: 10, streams: []int{1, 3}, puts: 2, messages: 3, turns: once},
		disagg: disaggScale{
			model: model.Synthetic{Family: "qwen3", DType: "bf16", ContextLen: 2048}, prompts: []int{70, 150}, streams: 2, output: 1500, prompt: 300,
			idle: time.Millisecond, turns: once,
		},
		onGPUs: disaggScale{
			model: model.Synthetic{Family: "qwen3", DType: "bf16", ContextLen: 1024}, prompts: []int{70}, streams: 1, output: 900, prompt: 80,
			idle: time.Millisecond, turns: once,
		},
		images: imagesScale{
			towers: []cpuShape{{"tiny", modeltest.Vision()["smolvlm"]}}, window: time.Millisecond, limitWindow: time.Millisecond, encoders: once,
			model: tinySeer(), images: []int{1, 2}, encode: []int{0, 1}, streams: 1, output: 3000, idle: time.Millisecond, requests: 2, turns: once,
		},
		cpu: cpuScale{
			shapes: []cpuShape{
				{"qwen3-0.6b", model.Synthetic{Family: "qwen3", Layers: 1, DType: "bf16", Tied: true}},
				{"llama-3.2-1b", model.Synthetic{Layers: 1, DType: "bf16"}},
			},
			prefill: []int{70, 128}, context: 65, steps: 1024, window: time.Millisecond, parallel: 3, parallelPrompt: 64,
			parallelOutput: 24, startPrompt: 20, starts: 1, limitWindow: time.Millisecond, readBytes: 1 << 20, turns: turns{2, time.Minute},
		},
		accuracy: accuracyScale{tokens: 70, window: 64, slowBytes: 1 << 30},
		router:   routerScale{rate: 50, window: 500 * time.Millisecond, workers: 2, tokens: 1000, shares: 3, blocks: 1000, turns: once},
		fleet: fleetScale{
			axes: []string{axisWorkers}, points: map[string][]int{axisWorkers: {2}, axisFrontends: {1}, axisNodes: {1}}, workers: 2, processes: 1, blocks: 64,
			// Workers publish once in StatusInterval, all at the same instant.
			settle: time.Millisecond, idle: 3 * cluster.StatusInterval / 2, requests: 2, changes: 1, orders: 1, timeout: time.Minute, turns: once,
		},
	}
}

// Every section runs and fills its tables. Nothing is asserted about speed.
func TestSections(t *testing.T) {
	usePerftest(t, "")
	overUCX, _ := ucxRoutes()
	for _, tc := range []struct {
		section string
		tables  []string
		// rows of the tables together, and a column that every table of the section
		// has some figures in.
		rows int
	}{
		{"engine", []string{"Memory", "Built-in model", "Memory", "Random bf16 model"}, 2 * (3 + 5)},
		{"path", []string{"Built-in model", "Messages", "Mock engine, as fast", "Mock engine, a step"}, 6 + 2 + 6 + 2},
		{"nixl", []string{"Transfers", "Notification"}, 2*(7+2*len(hostRoutes())+ucxRows()) + 4 + len(hostRoutes()) + len(overUCX)},
		{"disagg", []string{"Remote prefill", "Running streams", "Transfers between"}, 8 + 8 + 4},
		{"images", []string{"Encoders", "Requests with images"}, 1 + 6},
		{"router", []string{"Requests", "Router and index"}, 2 + 2},
		{"plane", []string{"Request plane, one", "Request plane, streamed", "Embedded"}, 6 + 8 + 7},
	} {
		t.Run(tc.section, func(t *testing.T) {
			dir := t.TempDir()
			var progress strings.Builder
			r, err := run(t.Context(), Options{Sections: []string{tc.section}, StateDir: dir, Child: []string{os.Args[0], asChild}, Progress: &progress, Command: "c", Version: "v"}, smokeScale())
			if err != nil {
				t.Fatalf("%v\n%s", err, progress.String())
			}
			if len(r.Sections) != 1 || r.Sections[0].Name != tc.section {
				t.Fatalf("sections: %+v", r.Sections)
			}
			sec := r.Sections[0]
			rows := 0
			for i, table := range sec.Tables {
				if i >= len(tc.tables) || !strings.HasPrefix(table.Name, tc.tables[i]) {
					t.Fatalf("table %d is %q, want %q", i, table.Name, tc.tables)
				}
				rows += len(table.Rows)
				checkTable(t, table)
			}
			if len(sec.Tables) != len(tc.tables) || rows != tc.rows {
				t.Errorf("%d tables with %d rows, want %d with %d", len(sec.Tables), rows, len(tc.tables), tc.rows)
			}
			if progress.Len() == 0 {
				t.Error("no progress")
			}
			checkClean(t, dir)
		})
	}
}

// tinySeer is the smallest model that reads images.
func tinySeer() model.Synthetic {
	m := seeingModel(map[string]any{"hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 3, "num_hidden_layers": 3, "image_size": 70, "patch_size": 14})
	m.Layers, m.Hidden, m.Heads, m.KVHeads, m.HeadDim, m.FFN = 1, 32, 2, 1, 16, 48
	return m
}

// ucxRows returns the number of additional rows that a shape has on this machine because
// of UCX.
func ucxRows() (n int) {
	routes, _ := ucxRoutes()
	for _, r := range routes {
		n += len(r.ops)
	}
	if p, _ := findPerftest(); p != nil {
		n += len(p.tests)
	}
	return n
}

// checkTable wants figures that can be: every row has some, every column is used,
// and what is measured is positive; differences may be negative.
func checkTable(t *testing.T, table Table) {
	t.Helper()
	used := map[string]bool{}
	for _, row := range table.Rows {
		if len(row.Figures) == 0 {
			t.Errorf("%s: nothing was measured of %q", table.Name, row.Name)
		}
		for key, f := range row.Figures {
			used[key] = true
			bad := math.IsNaN(f.Median) || math.IsInf(f.Median, 0) || f.Low > f.Median || f.Median > f.High || f.Repetitions < 1
			if bad || f.Low < 0 && !strings.HasPrefix(key, "added_") {
				t.Errorf("%s, %s, %s: %+v", table.Name, row.Name, key, f)
			}
		}
	}
	for _, c := range table.Columns {
		if !used[c.Key] {
			t.Errorf("%s: no figure in column %q", table.Name, c.Title)
		}
	}
}

// checkClean wants nothing left but models.
func checkClean(t *testing.T, stateDir string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(stateDir, homeName))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "models" {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}

func TestEngineWithModel(t *testing.T) {
	dir := modeltest.Generate(t, modeltest.Spec{ContextLen: 2048})
	r, err := run(t.Context(), Options{Sections: []string{"engine"}, StateDir: t.TempDir(), Model: dir}, smokeScale())
	if err != nil {
		t.Fatal(err)
	}
	tables := r.Sections[0].Tables
	if last := tables[len(tables)-1]; last.Name != "Model "+dir {
		t.Errorf("the last table is %q", last.Name)
	}
}

// Prefill that would take too long is left out, and the report says so.
func TestSlowPrefillIsLeftOut(t *testing.T) {
	sc := smokeScale()
	sc.engine.caseLimit = 1
	r, err := run(t.Context(), Options{Sections: []string{"engine"}, StateDir: t.TempDir()}, sc)
	if err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(r.Sections[0].Notes, "\n")
	if !strings.Contains(notes, "Prefill of 70 tokens") || strings.Contains(string(r.Markdown()), "| prefill, 70 tokens |") {
		t.Errorf("notes:\n%s", notes)
	}
}

// The synthetic model is written once, and a damaged one is replaced.
func TestSynthesize(t *testing.T) {
	s, err := newSession(Options{StateDir: t.TempDir()}, smokeScale())
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.synthesize(s.scale.engine.synthetic)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(first, "config.json")
	info, err := os.Stat(config)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.synthesize(s.scale.engine.synthetic)
	if err != nil {
		t.Fatal(err)
	}
	if now, err := os.Stat(config); err != nil || again != first || !os.SameFile(info, now) {
		t.Errorf("the second call gave %s, %v: want the same files in %s", again, err, first)
	}
	if err := os.Truncate(filepath.Join(first, "model.safetensors"), 100); err != nil {
		t.Fatal(err)
	}
	if again, err = s.synthesize(s.scale.engine.synthetic); err != nil || again != first {
		t.Fatalf("after damage: %s, %v", again, err)
	}
	m, err := model.Open(first, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.Close(), s.close()); err != nil {
		t.Error(err)
	}
	checkClean(t, s.opts.StateDir)
}

func TestRunIsInterrupted(t *testing.T) {
	for _, section := range []string{"engine", "path", "nixl", "plane", "disagg", "images"} {
		t.Run(section, func(t *testing.T) {
			interrupted := errors.New("interrupted")
			ctx, cancel := context.WithCancelCause(t.Context())
			dir := t.TempDir()
			sc := smokeScale()
			// The end comes with the first round of measurements.
			progress := writerFunc(func(line string) {
				if strings.Contains(line, "round 1") {
					cancel(interrupted)
				}
			})
			_, err := run(ctx, Options{Sections: []string{section}, StateDir: dir, Progress: progress}, sc)
			if !errors.Is(err, interrupted) {
				t.Errorf("got %v", err)
			}
			checkClean(t, dir)
		})
	}
}

type writerFunc func(string)

func (f writerFunc) Write(b []byte) (int, error) {
	f(string(b))
	return len(b), nil
}

func TestChoose(t *testing.T) {
	if _, err := Run(t.Context(), Options{Sections: []string{"engine", "speed"}, StateDir: t.TempDir()}); !errors.Is(err, ErrSection) {
		t.Errorf("got %v", err)
	}
	names, about := Names()
	all, err := choose(nil)
	if err != nil || len(all) != 6 {
		t.Errorf("%d sections, %v", len(all), err)
	}
	for _, s := range all {
		if s.apart {
			t.Errorf("%s is part of everything", s.name)
		}
	}
	for _, n := range names {
		if about[n] == "" {
			t.Errorf("%s has no description", n)
		}
	}
}

func TestLeftoversAreRemoved(t *testing.T) {
	dir := t.TempDir()
	old, fresh := filepath.Join(dir, homeName, tmpPrefix+"old"), filepath.Join(dir, homeName, tmpPrefix+"fresh")
	for _, d := range []string{old, fresh} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	s, err := newSession(Options{StateDir: dir}, smokeScale())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old directory is there: %v", err)
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Errorf("the fresh directory, which may be in use: %v", err)
	}
}
