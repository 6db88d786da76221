package profiler

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/profile"
)

var (
	subject = Subject{Server: "http://10.0.0.5:8000", Model: "tiny", API: "chat", Devices: 2, Limits: profile.Limits{KVBlocks: 100, BlockSize: 16, MaxSeqs: 8, MaxBatchTokens: 512, MaxContext: 1024}}
	points  = []Measurement{
		{Point: Point{Prefill, 32, 1}, Seconds: 0.01, Prompt: 33, Cached: 1, TookS: 0.1},
		{Point: Point{Prefill, 900, 1}, Seconds: 0.2, Prompt: 905, TookS: 1},
		{Point: Point{Decode, 128, 1}, Seconds: 0.002, Context: 127.5, Counted: 32, TookS: 1},
		{Point: Point{Decode, 128, 4}, Seconds: 0.004, Context: 128.5, Counted: 128, TookS: 1},
		{Point: Point{Decode, 512, 2}, Seconds: 0.003, Context: 513, Counted: 64, TookS: 1},
	}
)

// A journal that is cut anywhere has the points that are whole, and goes on behind them.
func TestJournalIsCutAnywhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.points")
	j, have, err := OpenJournal(path, subject, false)
	if err != nil || len(have) > 0 {
		t.Fatal(have, err)
	}
	for _, m := range points {
		if err := j.Add(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) + 1 {
		if edge := n == len(whole) || whole[n] == '\n' || n > 0 && whole[n-1] == '\n'; n%13 > 0 && !edge {
			continue
		}
		if err := os.WriteFile(path, whole[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		j, have, err := OpenJournal(path, subject, false)
		lines := bytes.Count(whole[:n], []byte("\n"))
		if err != nil || !reflect.DeepEqual(have, append([]Measurement(nil), points[:max(lines-1, 0)]...)) {
			t.Fatalf("%d bytes: %+v, %v", n, have, err)
		}
		for _, m := range points[len(have):] {
			if err := j.Add(m); err != nil {
				t.Fatal(err)
			}
		}
		_ = j.Close()
		if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, whole) {
			t.Fatalf("%d bytes: it becomes\n%s", n, again)
		}
	}
	if j, have, err = OpenJournal(path, subject, true); err != nil || len(have) > 0 {
		t.Fatalf("anew: %+v, %v", have, err)
	}
	_ = j.Close()
	if again, _ := os.ReadFile(path); bytes.Count(again, []byte("\n")) != 1 {
		t.Errorf("anew:\n%s", again)
	}
}

func TestJournalOfSomethingElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.points")
	j, _, err := OpenJournal(path, subject, false)
	if err != nil {
		t.Fatal(err)
	}
	_ = j.Close()
	before, _ := os.ReadFile(path)
	for want, change := range map[string]func(*Subject){
		"its server is http://10.0.0.5:8000, and this is http://other": func(s *Subject) { s.Server = "http://other" },
		"its model is tiny, and this is big":                           func(s *Subject) { s.Model = "big" },
		"its api is chat":                                              func(s *Subject) { s.API = "completions" },
		"its devices is 2, and this is 1":                              func(s *Subject) { s.Devices = 1 },
		"its kv_blocks is 100, and this is 99":                         func(s *Subject) { s.Limits.KVBlocks-- },
		"its block_size":                                               func(s *Subject) { s.Limits.BlockSize = 32 },
		"its max_num_seqs":                                             func(s *Subject) { s.Limits.MaxSeqs = 9 },
		"its max_num_batched_tokens":                                   func(s *Subject) { s.Limits.MaxBatchTokens = 9 },
		"its max_model_len":                                            func(s *Subject) { s.Limits.MaxContext = 9 },
	} {
		other := subject
		change(&other)
		if _, _, err := OpenJournal(path, other, false); !errors.Is(err, ErrOther) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("a journal that was refused is changed")
	}
	head := string(before)
	for text, want := range map[string]string{
		"{}\n":                      "line 1",
		"notes of mine":             "line 1",
		"notes of mine\n":           "line 1",
		head + "{}\n":               `line 2: kind ""`,
		head + "x\n":                "line 2",
		head + `{"speed":1}` + "\n": "line 2",
		head + `{"kind":"prefill","tokens":1,"streams":1,"seconds":1,"prompt":1,"took_s":1}{}` + "\n":                            "text follows",
		head + `{"kind":"prefill","tokens":1,"streams":2,"seconds":1,"prompt":1,"took_s":1}` + "\n":                              "no such prompt",
		head + `{"kind":"prefill","tokens":1,"streams":1,"seconds":1,"prompt":1,"cached":1,"took_s":1}` + "\n":                   "no such prompt",
		head + `{"kind":"decode","tokens":1,"streams":1,"seconds":0,"context":1,"counted":1,"took_s":1}` + "\n":                  "no such time",
		head + `{"kind":"decode","tokens":1,"streams":1,"seconds":1,"context":0,"counted":1,"took_s":1}` + "\n":                  "no such context",
		head + `{"kind":"decode","tokens":0,"streams":1,"seconds":1,"context":1,"counted":1,"took_s":1}` + "\n":                  "no such point",
		head + strings.Repeat(`{"kind":"decode","tokens":1,"streams":1,"seconds":1,"context":1,"counted":1,"took_s":1}`+"\n", 2): "twice",
		strings.Repeat("x", maxJournal+1): "more than",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := OpenJournal(path, subject, false); !errors.Is(err, ErrJournal) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
		if after, _ := os.ReadFile(path); string(after) != text {
			t.Errorf("%.60q is changed", text)
		}
	}
	if _, _, err := OpenJournal(filepath.Join(path, "below"), subject, false); err == nil {
		t.Error("a journal below a file")
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"profiler_journal":1,"subject":{"server":"a"}}` + "\n" + `{"kind":"prefill","tokens":1,"streams":1,"seconds":1,"prompt":1,"took_s":1}` + "\n" + `{"ki`))
	f.Add([]byte("{\"profiler_journal\":1}\n{\"kind\":\"decode\",\"tokens\":2,\"streams\":3,\"seconds\":1e-3,\"context\":7,\"counted\":9}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		of, have, whole, err := readJournal(bytes.NewReader(text))
		if err != nil {
			return
		}
		if whole > int64(len(text)) || whole > 0 && text[whole-1] != '\n' {
			t.Fatalf("%d whole bytes of %d", whole, len(text))
		}
		again, twice, _, err := readJournal(bytes.NewReader(text[:whole]))
		if err != nil || again != of || !reflect.DeepEqual(have, twice) {
			t.Fatalf("%+v, %v", twice, err)
		}
		of.Devices, of.Limits = 1, subject.Limits
		_, _ = Build(of, have) // says what is wrong, or makes a profile
	})
}

// A built profile has what was measured, in its units, and the tables go through the files of
// NVIDIA Dynamo's profiler.
func TestBuild(t *testing.T) {
	p, err := Build(subject, points)
	if err != nil {
		t.Fatal(err)
	}
	want := profile.Measured{
		Prefill: &profile.PrefillTable{ISL: []float64{32, 905}, TTFT: []float64{0.01, 0.2}, Throughput: []float64{32 / 0.01 / 2, 905 / 0.2 / 2}},
		Decode: &profile.DecodeTable{
			KVUsage: []float64{127.5 / 1600, 4 * 128.5 / 1600, 2 * 513. / 1600}, Context: []float64{128, 128, 513}, ITL: []float64{0.002, 0.004, 0.003},
			Throughput: []float64{1 / 0.002 / 2, 4 / 0.004 / 2, 2 / 0.003 / 2}, MaxKVTokens: 1600,
		},
	}
	if !reflect.DeepEqual(p.Measured, want) || p.Name != "tiny" || p.Devices != 2 || p.Limits != subject.Limits || p.Fitted.Samples != 5 {
		t.Errorf("%+v\nwant %+v\n%+v", p.Measured, want, p)
	}
	var prefill, decode bytes.Buffer
	if err := errors.Join(p.Measured.Prefill.Write(&prefill), p.Measured.Decode.Write(&decode)); err != nil {
		t.Fatal(err)
	}
	again, err := profile.ReadPrefill(&prefill)
	if got := fmt.Sprintf("%.9g", [][]float64{again.ISL, again.TTFT, again.Throughput}); err != nil || got != fmt.Sprintf("%.9g", [][]float64{want.Prefill.ISL, want.Prefill.TTFT, want.Prefill.Throughput}) {
		t.Errorf("%+v, %v", again, err)
	}
	rows, err := profile.ReadDecode(&decode)
	if got := fmt.Sprintf("%.9g", [][]float64{rows.KVUsage, rows.Context, rows.ITL, rows.Throughput}); err != nil || rows.MaxKVTokens != 1600 || got != fmt.Sprintf("%.9g", [][]float64{want.Decode.KVUsage, want.Decode.Context, want.Decode.ITL, want.Decode.Throughput}) {
		t.Errorf("%+v, %v", rows, err)
	}
	for _, few := range [][]Measurement{nil, points[:2], points[1:], points[2:]} {
		if _, err := Build(subject, few); !errors.Is(err, ErrTooFew) {
			t.Errorf("%d points: %v", len(few), err)
		}
	}
	var svg strings.Builder
	if err := SVG(&svg, subject, points); err != nil || strings.Count(svg.String(), "<polyline") != 3 || !strings.Contains(svg.String(), ">context 128<") || !strings.Contains(svg.String(), ">context 512<") {
		t.Errorf("%v\n%s", err, svg.String())
	}
}
