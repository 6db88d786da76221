package bench

import (
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/patience"
)

func runCPU(t *testing.T, o CPUOptions) (*Report, string) {
	t.Helper()
	dir := t.TempDir()
	var progress strings.Builder
	r, err := run(t.Context(), Options{
		Sections: []string{"cpu"}, StateDir: dir, Progress: &progress, CPU: o, Child: []string{os.Args[0], asChild},
	}, smokeScale())
	if err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	checkClean(t, dir)
	return r, progress.String()
}

// Every case runs with every number of threads, and fills its columns.
func TestCPU(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("real shapes, in the goroutines that TestSections meets")
	}
	r, _ := runCPU(t, CPUOptions{Threads: []int{1, 2}, Operators: true})
	sec := r.Sections[0]
	var names []string
	for _, table := range sec.Tables {
		names = append(names, table.Name)
		checkTable(t, table)
		rows := map[string]int{
			"Limits": 2 * (1 + len(kernel.Peaks())), "Start": 2 * 3 * 2 * 2, "Pauses of the collector": 2 * 3 * 2 * 2,
		}[table.Name]
		if strings.Contains(table.Name, ", ") && !strings.HasPrefix(table.Name, "Operators") {
			rows = 2 * 6
		}
		if rows > 0 && len(table.Rows) != rows {
			t.Errorf("%s has %d rows, want %d", table.Name, len(table.Rows), rows)
		}
	}
	want := []string{"Limits"}
	for _, shape := range []string{"qwen3-0.6b", "llama-3.2-1b"} {
		for _, format := range []string{"bf16", "q8_0", "q4_0"} {
			name := shape + ", " + format
			want = append(want, name, "Operators: "+name+", 1 thread", "Operators: "+name+", 2 threads")
		}
	}
	if want = append(want, "Start", "Pauses of the collector"); !slices.Equal(names, want) {
		t.Errorf("tables %q, want %q", names, want)
	}
	if len(sec.Notes) > 0 {
		t.Errorf("notes: %q", sec.Notes)
	}
	for _, table := range sec.Tables {
		if strings.HasPrefix(table.Name, "Operators") {
			checkOperators(t, table)
		}
	}
	// Published figures stand beside the cases they are about.
	peer := sec.Tables[1].Rows[1].Figures
	if got := peer[keyPeer]; got != (Figure{}) {
		t.Errorf("prefill of 128 with one thread has the published figure %v", got)
	}
	peer = sec.Tables[1].Rows[6+1].Figures
	if got := peer[keyPeer].Median; got != 160 {
		t.Errorf("prefill of 128 with two threads has the published figure %v", got)
	}
	if text := string(r.Markdown()); !strings.HasPrefix(text, "# Benchmarks: CPU engine\n") || !strings.Contains(text, "another\nmachine") {
		t.Errorf("report:\n%s", text)
	}
}

// checkOperators wants columns that add up to everything.
func checkOperators(t *testing.T, table Table) {
	t.Helper()
	for _, c := range table.Columns {
		sum := 0.0
		for _, r := range table.Rows {
			sum += r.Figures[c.Key].Median
		}
		if math.Abs(sum-100) > 1e-6 {
			t.Errorf("%s: %s adds up to %v", table.Name, c.Key, sum)
		}
	}
}

func TestCPUChoices(t *testing.T) {
	r, progress := runCPU(t, CPUOptions{Models: []string{"llama-3.2-1b"}, Formats: []string{"bf16"}, Cases: []string{"prefill-70", "neighbor"}, Threads: []int{1}})
	tables := r.Sections[0].Tables
	if len(tables) != 2 || tables[1].Name != "llama-3.2-1b, bf16" {
		t.Fatalf("%d tables: %+v\n%s", len(tables), tables, progress)
	}
	var names []string
	for _, row := range tables[1].Rows {
		names = append(names, row.Name)
	}
	want := []string{"prefill, 70 tokens, 1 thread", "decode, 1 sequence, 1 thread", "decode, 1 sequence, busy neighbor on all cores, 1 thread"}
	if !slices.Equal(names, want) {
		t.Errorf("rows %q, want %q", names, want)
	}
	if tables[1].Rows[2].Figures[keyAlone].Repetitions == 0 {
		t.Error("the neighbor is compared with nothing")
	}
	for _, o := range []CPUOptions{{Models: []string{"gpt"}}, {Formats: []string{"q9_9"}}, {Cases: []string{"speed"}}, {Threads: []int{0}}} {
		_, err := run(t.Context(), Options{Sections: []string{"cpu"}, StateDir: t.TempDir(), CPU: o}, smokeScale())
		if !errors.Is(err, ErrChoice) {
			t.Errorf("%+v: err = %v", o, err)
		}
	}
}

// A program that cannot start itself leaves out what needs processes, and says so.
func TestCPUWithoutChildren(t *testing.T) {
	r, err := run(t.Context(), Options{Sections: []string{"cpu"}, StateDir: t.TempDir(), CPU: CPUOptions{Models: []string{"qwen3-0.6b"}, Threads: []int{1}}}, smokeScale())
	if err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(r.Sections[0].Notes, "\n"); !strings.Contains(notes, "Starts are left out") {
		t.Errorf("notes: %q", notes)
	}
}

func TestChildRefuses(t *testing.T) {
	for _, spec := range []string{"", "{}", `{"first_token":{"model":"/no/such/model"}}`, `{"first_token":{"format":"q9_9"}}`} {
		if err := Child(t.Context(), spec, strings.NewReader(""), new(strings.Builder)); err == nil {
			t.Errorf("%q: no error", spec)
		}
	}
}

// TestWork holds the counts to those by which the published figures were compared.
func TestWork(t *testing.T) {
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got/want-1) > 0.005 {
			t.Errorf("%s: %.4g, want %.4g", what, got, want)
		}
	}
	// A shape small enough to write, with the proportions kept by hand.
	m := modeltest.Open(t, modeltest.Spec{Family: "qwen3", Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2, HeadDim: 32, FFN: 96, Vocab: 512, DType: "bf16", Tied: true})
	const matrices = 2 * (64*128 + 2*64*64 + 128*64 + 3*64*96)
	w := newWork(m, 8.5, peerKV(m.Config()))
	near("operations of a token", w.layers, 2*matrices)
	near("operations of logits", w.head, 2*64*512)
	near("operations of a position", w.seen, 4*2*4*32)
	near("bytes of a position", w.kv, 2*2*2*32*2)
	norms := float64(2*(2*64+2*32)+64) * 2
	near("bytes of weights", w.weights, (matrices+64*512)*8.5/8+norms)
	near("prefill", w.prefill(3), w.layers+2*w.seen+w.head/3)
	near("bytes of 4 sequences", w.decodeBytes(4, 10), w.weights/4+10*w.kv)
	near("operations of decoding", w.decodeOps(10), w.layers+w.head+10*w.seen)

	// The real shapes, from their configurations alone.
	for _, shape := range cpuShapes() {
		s := shape.spec
		layer := s.Hidden*s.HeadDim*(2*s.Heads+2*s.KVHeads) + 3*s.Hidden*s.FFN
		want := map[string][2]float64{"qwen3-0.6b": {0.881e9, 1192e6}, "llama-3.2-1b": {1.946e9, 2472e6}}[shape.name]
		near(shape.name+" FLOP", float64(2*s.Layers*layer), want[0])
		near(shape.name+" bytes", float64(2*(s.Layers*layer+s.Hidden*s.Vocab)), want[1])
	}
}

func TestPeerRates(t *testing.T) {
	for key, rates := range peerRates {
		if (rates[0] == 0) != (key.kind != "prefill-512" && key.kind != "decode") {
			t.Errorf("%v: one thread %v", key, rates[0])
		}
		if rates[1] <= rates[0] {
			t.Errorf("%v: %v", key, rates)
		}
	}
	if _, ok := peerRate(peerKey{"qwen3-0.6b", "bf16", "decode"}, 4); ok {
		t.Error("a figure with four threads")
	}
	if len(peerRates) != 2*3*6 || len(peerStarts) != 2*3 {
		t.Errorf("%d rates, %d starts", len(peerRates), len(peerStarts))
	}
}

func TestQuantilesOf(t *testing.T) {
	buckets := []float64{0, 0.001, 0.002, 0.004, math.Inf(1)}
	for _, tc := range []struct {
		counts []uint64
		want   Sample
	}{
		{[]uint64{0, 0, 0, 0}, Sample{keyPauses: 0}},
		{[]uint64{1, 0, 0, 0}, Sample{keyPauses: 1, "pause_ms_p50": 1, "pause_ms_p99": 1, "pause_ms_max": 1}},
		{[]uint64{50, 49, 1, 0}, Sample{keyPauses: 100, "pause_ms_p50": 1, "pause_ms_p99": 2, "pause_ms_max": 4}},
		{[]uint64{0, 1, 1, 1}, Sample{keyPauses: 3, "pause_ms_p50": 4, "pause_ms_p99": math.Inf(1), "pause_ms_max": math.Inf(1)}},
	} {
		got := quantilesOf(tc.counts, buckets)
		for key, want := range tc.want {
			if got[key] != want {
				t.Errorf("%v: %s is %v, want %v", tc.counts, key, got[key], want)
			}
		}
		if len(got) != len(tc.want) {
			t.Errorf("%v: %v", tc.counts, got)
		}
	}
}

func TestWhileCollecting(t *testing.T) {
	broken := errors.New("broken")
	s, err := whileCollecting(t.Context(), func() error { return broken })
	if !errors.Is(err, broken) || s[keyPauses] < 2 {
		t.Errorf("%v, %v: want the error and the pauses of one collection at least", s, err)
	}
}
