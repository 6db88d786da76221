package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/bench"
	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/session"
)

// benchServer is a foreign server of two models that counts words, wants the key sk-1 and
// answers with as many tokens as asked for.
type benchServer struct {
	*httptest.Server
	mu      sync.Mutex
	asked   []map[string]any
	refuses string // a field
	stops   chan struct{}
}

func newBenchServer(t *testing.T) *benchServer {
	t.Helper()
	s := &benchServer{}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *benchServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer sk-1" {
		clitest.Refuses(401, "", "", "Wrong key.")(w, r)
		return
	}
	if r.URL.Path == "/v1/models" {
		_, _ = io.WriteString(w, `{"data":[{"id":"tiny"},{"id":"big"}]}`)
		return
	}
	var q map[string]any
	_ = json.NewDecoder(r.Body).Decode(&q)
	q["path"] = r.URL.Path
	s.mu.Lock()
	s.asked = append(s.asked, q)
	n := len(s.asked)
	s.mu.Unlock()
	if _, has := q[s.refuses]; has {
		clitest.Refuses(400, "", "", "Unrecognized request argument supplied: "+s.refuses)(w, r)
		return
	}
	if s.stops != nil && n == 6 {
		close(s.stops)
		<-r.Context().Done()
		return
	}
	prompt, _ := q["prompt"].(string)
	if list, ok := q["messages"].([]any); ok {
		prompt = list[0].(map[string]any)["content"].(string)
	}
	var b strings.Builder
	for range int(q["max_tokens"].(float64)) {
		b.WriteString(`data: {"choices":[{"delta":{"content":"x "},"text":"","finish_reason":null}]}` + "\n\n")
	}
	fmt.Fprintf(&b, `data: {"choices":[{"delta":{},"finish_reason":"length"}],"usage":{"prompt_tokens":%d,"completion_tokens":%v}}`+"\n\ndata: [DONE]\n\n", 5+2*len(strings.Fields(prompt)), q["max_tokens"])
	clitest.Streams(b.String())(w, r)
}

// run runs dynctl bench against the server.
func (s *benchServer) run(t *testing.T, o options, args ...string) result {
	t.Helper()
	o.env = append([]string{"HOME=/nowhere", "OPENAI_API_KEY=sk-1"}, o.env...)
	return runMain(t.Context(), o, append([]string{"bench", "--url", s.URL, "--model", "big"}, args...)...)
}

func TestBench(t *testing.T) {
	s, dir := newBenchServer(t), t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	r := s.run(t, options{tty: true}, "--color", "never", "--concurrency", "2", "--requests", "12", "--warmup", "1", "--isl", "41", "--osl", "6", "--seed", "7", "--slo", "e2e=1h",
		"--save", file("a.json"), "--save", file("a.csv"), "--save", file("a.svg"))
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	clitest.Has(t, "stdout", r.stdout, "12 requests in ", ": 12 ok, 0 failed\n", "goodput ", ": 100.0 % within e2e=1h0m0s\n",
		"prompts 41.0 and 41.0, answers 6.00 and 6.00; 0.0 % of prompts cached; ended by length 12\n", "; seed 7\n")
	if len(s.asked) != 2+1+12 || s.asked[14]["ignore_eos"] != true || s.asked[14]["min_tokens"] != 6.0 || s.asked[14]["model"] != "big" || s.asked[14]["path"] != "/v1/chat/completions" {
		t.Errorf("%d requests, the last %v", len(s.asked), s.asked[len(s.asked)-1])
	}
	text, err := os.ReadFile(file("a.json"))
	if err != nil {
		t.Fatal(err)
	}
	report, err := bench.Read(strings.NewReader(string(text)))
	if err != nil || report.Succeeded != 12 || report.Load.Seed != 7 || report.Load.Scale.PerWord != 2 || report.Load.Scale.Overhead != 5 || report.URL != s.URL || report.Load.Arrivals != "2 conversations at a time" || report.Load.Prompts != "41 tokens" {
		t.Errorf("%+v, %v", report, err)
	}
	rows, err := os.ReadFile(file("a.csv"))
	if n := strings.Count(string(rows), "\n"); err != nil || n != 13 {
		t.Errorf("%d rows, %v", n, err)
	}
	if svg, err := os.ReadFile(file("a.svg")); err != nil || strings.Count(string(svg), "<circle") != 24 {
		t.Errorf("%s, %v", svg, err)
	}
	// The same seed asks the same.
	before := prompts(s.asked)
	s.asked = nil
	if r := s.run(t, options{}, "--concurrency", "1", "--requests", "12", "--warmup", "1", "--isl", "41", "--osl", "6", "--seed", "7", "-o", "json"); r.code != 0 || !strings.HasPrefix(r.stdout, "{\n  \"version\": 1,") || r.stderr != "" {
		t.Errorf("%+v", r)
	}
	if !slices.Equal(prompts(s.asked), before) {
		t.Error("the same seed asks something else")
	}
	s.asked = nil
	s.run(t, options{}, "--concurrency", "1", "--requests", "12", "--warmup", "1", "--isl", "41", "--osl", "6")
	if slices.Equal(prompts(s.asked), before) {
		t.Error("every run asks the same: a prefix cache would have it all")
	}
	r = runMain(t.Context(), options{env: []string{"HOME=/nowhere"}}, "bench", "--compare", file("a.json"), file("a.json"))
	if r.code != 0 || r.stderr != "" {
		t.Errorf("%+v", r)
	}
	clitest.Matches(t, "comparison", r.stdout, `^FIGURE\tA\tB\tB/A\tBEYOND CHANCE\nttft_mean_ms\t[0-9.]+\t[0-9.]+\t1.00\tno\n`)
	clitest.Has(t, "comparison", r.stdout, "requests_per_s\t", "\t1.00\t-\n", "good_share\t1.00\t1.00\t1.00\tno\n")
}

// prompts are the texts asked for, in order of their bytes.
func prompts(asked []map[string]any) (out []string) {
	for _, q := range asked {
		out = append(out, fmt.Sprint(q["messages"]))
	}
	slices.Sort(out)
	return out
}

// Rates, a trace and the other endpoint.
func TestBenchOpenLoops(t *testing.T) {
	s := newBenchServer(t)
	trace := filepath.Join(t.TempDir(), "t.jsonl")
	lines := `{"timestamp":0,"input_length":30,"output_length":3,"hash_ids":[1]}
{"timestamp":1000,"input_length":25,"output_length":4,"hash_ids":[1]}
{"timestamp":2000,"input_length":600,"output_length":2,"hash_ids":[1,2]}
`
	if err := os.WriteFile(trace, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	report := func(args ...string) *bench.Report {
		t.Helper()
		s.asked = nil
		r := s.run(t, options{}, append(args, "-o", "json")...)
		got, err := bench.Read(strings.NewReader(r.stdout))
		if err != nil || r.code != 0 {
			t.Fatalf("%v: %+v, %v", args, r, err)
		}
		return got
	}
	got := report("--trace", trace, "--speed", "10", "--api", "completions")
	if got.Succeeded != 3 || got.API != "completions" || !got.Load.OpenLoop || got.Load.Arrivals != "of the trace, 10 times as fast" || len(got.Phases) != 5 || got.Output.Total != 9 || s.asked[4]["path"] != "/v1/completions" {
		t.Errorf("%+v", got)
	}
	one, two := s.asked[2]["prompt"].(string), s.asked[3]["prompt"].(string)
	if !strings.HasPrefix(one, two) || len(strings.Fields(s.asked[4]["prompt"].(string))) < 290 {
		t.Errorf("prompts %q and %q", one, two)
	}
	for _, p := range got.Phases[:1] {
		if p.ToS <= 0.03 || p.ToS > 0.05 || p.Requests != 1 {
			t.Errorf("%+v", p)
		}
	}
	got = report("--trace", trace, "--rate", "50", "--arrival", "constant", "--no-ignore-eos")
	if got.Succeeded != 3 || got.Load.Arrivals != "50 requests/s, constant" || len(got.Phases) != 0 || got.Load.IgnoreEOS || s.asked[2]["ignore_eos"] != nil || got.Load.Prompts != "of t.jsonl" {
		t.Errorf("%+v", got)
	}
	got = report("--ramp", "20:60:1s", "--isl", "uniform:20:40", "--osl", "2", "--prefix-share", "0.5", "--prefixes", "2", "--phases", "2")
	if got.Requests < 20 || got.Requests > 65 || len(got.Phases) != 2 || got.Phases[1].FromS != 0.5 || got.Load.Prompts != "uniform:20:40 tokens, 0.5 of them one of 2 prefixes" {
		t.Errorf("%+v", got)
	}
}

// Ctrl-C ends the load with the report of what was done.
func TestBenchIsStopped(t *testing.T) {
	s := newBenchServer(t)
	s.stops = make(chan struct{})
	ctx, cancel := contextThatEnds(t, s.stops)
	defer cancel()
	r := runMain(ctx, options{env: []string{"HOME=/nowhere"}}, "bench", "--url", s.URL, "--api-key", "sk-1", "--model", "tiny", "--concurrency", "1", "--osl", "2", "--duration", "10m")
	if r.code != exit.Interrupted {
		t.Errorf("%+v", r)
	}
	clitest.Has(t, "stderr", r.stderr, "4 requests in ", "3 ok, 0 failed, 1 stopped in flight\n", "dynctl: stopped; the report is of what was done\n")
	clitest.Has(t, "stdout", r.stdout, "TTFT ms\t")
}

func TestBenchRefusals(t *testing.T) {
	s := newBenchServer(t)
	s.refuses = "ignore_eos"
	r := s.run(t, options{}, "--requests", "1")
	if r.code != exit.Failed || len(s.asked) != 1 {
		t.Errorf("%+v", r)
	}
	clitest.Has(t, "stderr", r.stderr, "dynctl: cannot measure: the first request: Unrecognized request argument supplied: ignore_eos", "--no-ignore-eos   if the server does not know")
	if r := s.run(t, options{}, "--requests", "2", "--no-ignore-eos"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if r := s.run(t, options{env: []string{"OPENAI_API_KEY=sk-2"}}, "--requests", "1"); r.code != exit.Failed || !strings.Contains(r.stderr, "Wrong key (status 401)") {
		t.Errorf("%+v", r)
	}
	// All fail: the report says how, and so does the exit code.
	s.refuses = "never"
	bad := clitest.NewFrontend(t, clitest.Says("", "a b"), clitest.Says("", "a b"), clitest.Refuses(503, "", "", "Busy."))
	r = runMain(t.Context(), options{env: []string{"HOME=/nowhere"}}, "bench", "--url", bad.URL, "--requests", "3", "--osl", "2")
	if r.code != exit.Failed {
		t.Errorf("%+v", r)
	}
	clitest.Has(t, "stderr", r.stderr, "does not count the tokens of prompts", "0 ok, 3 failed (http-503 3)\n", "http-503: Busy (status 503)\n")
	clitest.Has(t, "stdout", r.stdout, "TTFT ms\t-\t-\t-\t-\t-\t-\n")
}

// Mistakes are found before anything is dialed.
func TestBenchUsage(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.jsonl")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"--rate 0":                         "--rate: 0 requests/s is not above 0",
		"--ramp 1:2":                       "--ramp: \"1:2\" is not FROM:TO:TIME",
		"--sine 3:2:1m":                    "--sine: ",
		"--rate 1 --concurrency 2":         "--rate and --concurrency: choose one",
		"--concurrency 0":                  "--concurrency: 0 is not between 1",
		"--max-in-flight 0":                "--max-in-flight: 0 is not",
		"--isl zipf:1:2":                   "--isl: ",
		"--osl 0":                          "--osl: ",
		"--prefix-share 1.5":               "--prefix-share: 1.5 is not between 0 and 1",
		"--prefixes 0":                     "--prefixes: at least one",
		"--turns 0":                        "--turns: 0 is not",
		"--turns 2 --api completions":      "--turns: conversations need --api chat",
		"--speed 2":                        "--speed: needs --trace",
		"--trace " + empty + " --isl 5":    "--isl: prompts and answers are those of the trace",
		"--trace " + empty + " --speed -1": "--speed: -1 is not above 0",
		"--trace " + empty:                 "it has no request",
		"--trace /no/such/file":            "no such file",
		"--slo fast":                       "--slo: ",
		"--save x.txt":                     "--save: \"x.txt\" does not end in",
		"--save /no/such/dir/x.csv":        "no such file",
		"--timeout 0s":                     "--timeout: must be greater",
		"--phases 51 --rate 1":             "--phases: 51 are more than 50",
		"--phases 2 --requests 3 --rate 1": "--phases: needs --duration",
		"--compare":                        "--compare and two reports belong together",
		"a.json b.json":                    "--compare and two reports belong together",
		"a.json":                           "name two reports",
		"--compare /no/a.json /no/b.json":  "cannot compare: open /no/a.json",
	} {
		r := runMain(t.Context(), options{env: []string{"HOME=/nowhere"}}, append([]string{"bench", "--url", "http://127.0.0.1:1"}, strings.Fields(line)...)...)
		if r.code != exit.Usage && r.code != exit.Failed || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit %d, %s", line, r.code, r.stderr)
		}
	}
}

// contextThatEnds ends as by ctrl-c when c is closed.
func contextThatEnds(t *testing.T, c <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-c:
			cancel(session.ErrInterrupt)
		case <-done:
		}
	})
	return ctx, func() { close(done); wg.Wait(); cancel(nil) }
}
