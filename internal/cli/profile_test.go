package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/store"
)

// profileServer counts a word as a token, and three more of each prompt. It sends an answer token
// by token.
type profileServer struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []map[string]any
	at     int           // of the request at which stops closes; 0 is none
	stops  chan struct{} //
	silent bool          // no usage
}

func newProfileServer(t *testing.T) *profileServer {
	t.Helper()
	s := &profileServer{stops: make(chan struct{})}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *profileServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/models" {
		_, _ = io.WriteString(w, `{"data":[{"id":"tiny","max_model_len":320},{"id":"big","max_model_len":320}]}`)
		return
	}
	s.chat(w, r)
}

func (s *profileServer) chat(w http.ResponseWriter, r *http.Request) {
	var q map[string]any
	_ = json.NewDecoder(r.Body).Decode(&q)
	s.mu.Lock()
	s.asked = append(s.asked, q)
	n, silent := len(s.asked), s.silent
	s.mu.Unlock()
	if n == s.at {
		close(s.stops)
		<-r.Context().Done()
		return
	}
	prompt := q["messages"].([]any)[0].(map[string]any)["content"].(string)
	w.Header().Set("Content-Type", "text/event-stream")
	for range int(q["max_tokens"].(float64)) {
		_, _ = io.WriteString(w, `data: {"choices":[{"delta":{"content":"x "},"finish_reason":null}]}`+"\n\n")
		w.(http.Flusher).Flush()
		time.Sleep(100 * time.Microsecond)
	}
	usage := fmt.Sprintf(`,"usage":{"prompt_tokens":%d,"completion_tokens":%v}`, 3+len(strings.Fields(prompt)), q["max_tokens"])
	if silent {
		usage = ""
	}
	_, _ = fmt.Fprintf(w, `data: {"choices":[{"delta":{},"finish_reason":"length"}]%s}`+"\n\ndata: [DONE]\n\n", usage)
}

// count is how many requests came.
func (s *profileServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

// line is the command that measures it, one sequence at a time.
func (s *profileServer) line(args ...string) []string {
	return append([]string{"profile", "--url", s.URL, "--model", "big", "--kv-tokens", "2048", "--max-num-seqs", "1", "--budget", "5m", "--color", "never"}, args...)
}

func readProfile(t *testing.T, path string) *profile.Profile {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := profile.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// rounded has milliseconds and seconds alike.
func rounded(columns ...[]float64) string { return fmt.Sprintf("%.6g", columns) }

// A server is measured into a profile, tables and a picture. The same command again has nothing to
// do, and what is of something else is not touched.
func TestProfile(t *testing.T) {
	s, dir := newProfileServer(t), t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	home := options{env: []string{"HOME=/nowhere"}, tty: true}
	files := []string{"--save", file("p.json"), "--svg", file("p.svg"), "--npz", file("tables")}
	r := runMain(t.Context(), home, s.line(files...)...)
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	// Prompts of 32, 64, 128 and 302 tokens; contexts of 128 and 272.
	clitest.Has(t, "stdout", r.stdout, "\n    64       0 ", "\n   302       0 ", "\nCONTEXT  SEQUENCES  KV USE  ITL MS  TOKENS/S", "█", "big of "+s.URL+": 6 points, measured in ",
		"not measured: kv, overheads.delivery_s, overheads.startup_s, overheads.flip_s: 0 in the profile\n", "max_num_batched_tokens was not given", "whether others used "+s.URL)
	p := readProfile(t, file("p.json"))
	if p.Name != "big" || p.Limits != (profile.Limits{KVBlocks: 128, BlockSize: 16, MaxSeqs: 1, MaxBatchTokens: 320, MaxContext: 320}) || p.Step == (profile.Costs{}) || p.Fitted == nil || p.Fitted.Samples != 6 {
		t.Errorf("%+v", p)
	}
	if got := fmt.Sprint(p.Measured.Prefill.ISL, len(p.Measured.Decode.ITL), p.Measured.Decode.MaxKVTokens); got != "[32 64 128 302] 2 2048" {
		t.Errorf("measured %s", got)
	}
	var tables [2]bytes.Buffer
	for i, name := range []string{"selected_prefill_interpolation", "selected_decode_interpolation"} {
		b, err := os.ReadFile(filepath.Join(file("tables"), name, "raw_data.npz"))
		if err != nil {
			t.Fatal(err)
		}
		tables[i].Write(b)
	}
	if prefill, err := profile.ReadPrefill(&tables[0]); err != nil || rounded(prefill.ISL, prefill.TTFT, prefill.Throughput) != rounded(p.Measured.Prefill.ISL, p.Measured.Prefill.TTFT, p.Measured.Prefill.Throughput) {
		t.Errorf("%+v, %v", prefill, err)
	}
	if decode, err := profile.ReadDecode(&tables[1]); err != nil || rounded(decode.KVUsage, decode.Context, decode.ITL, decode.Throughput) != rounded(p.Measured.Decode.KVUsage, p.Measured.Decode.Context, p.Measured.Decode.ITL, p.Measured.Decode.Throughput) || decode.MaxKVTokens != 2048 {
		t.Errorf("%+v, %v", decode, err)
	}
	if svg, err := os.ReadFile(file("p.svg")); err != nil || bytes.Count(svg, []byte("<polyline")) != 3 {
		t.Errorf("%s, %v", svg, err)
	}
	q := s.asked[len(s.asked)-1]
	if q["ignore_eos"] != true || q["min_tokens"] != q["max_tokens"] || q["model"] != "big" || q["nvext"] != nil {
		t.Errorf("%v", q)
	}
	// Again: two requests find out how the server counts, and nothing is measured.
	before, asked := readProfile(t, file("p.json")), s.count()
	r = runMain(t.Context(), options{env: home.env}, s.line(append(files, "-o", "json")...)...)
	if after := readProfile(t, file("p.json")); r.code != 0 || s.count() != asked+2 || fmt.Sprintf("%+v", *after.Measured.Prefill) != fmt.Sprintf("%+v", *before.Measured.Prefill) || !strings.HasPrefix(r.stdout, "{\n  \"version\": 1,\n") || r.stderr != "" {
		t.Errorf("%d more requests, %+v", s.count()-asked, r)
	}
	points, err := os.ReadFile(file("p.json.points"))
	if err != nil || bytes.Count(points, []byte("\n")) != 7 {
		t.Errorf("%s, %v", points, err)
	}
	for _, other := range [][]string{{"--model", "tiny"}, {"--max-num-seqs", "2"}, {"--kv-tokens", "4096"}, {"--max-model-len", "300"}, {"--api", "completions"}} {
		r := runMain(t.Context(), home, append(s.line("--save", file("p.json")), other...)...)
		if r.code != exit.Failed {
			t.Errorf("%v: %+v", other, r)
		}
		clitest.Has(t, "stderr", r.stderr, "p.json.points: it is of something else: its ", "--again")
	}
	if now, _ := os.ReadFile(file("p.json.points")); !bytes.Equal(now, points) {
		t.Error("a refused run has changed the points")
	}
	asked = s.count()
	r = runMain(t.Context(), home, s.line("--save", file("p.json"), "--again")...)
	if r.code != 0 || s.count() < asked+2+6 {
		t.Errorf("%d more requests, %+v", s.count()-asked, r)
	}
	s.silent = true
	if r = runMain(t.Context(), home, s.line()...); r.code != exit.Failed || !strings.Contains(r.stderr, "the server does not count tokens") {
		t.Errorf("%+v", r)
	}
}

// Ctrl-c at any request leaves what was measured, and the same command goes on.
func TestProfileIsStopped(t *testing.T) {
	for _, at := range []int{1, 3, 4, 11, 24} {
		s, dir := newProfileServer(t), t.TempDir()
		s.at = at
		path := filepath.Join(dir, "p.json")
		line := s.line("--save", path, "--progress", "json")
		ctx, done := contextThatEnds(t, s.stops)
		r := runMain(ctx, options{env: []string{"HOME=/nowhere"}}, line...)
		done()
		if r.code != exit.Interrupted {
			t.Fatalf("at %d: %+v", at, r)
		}
		if at > 2 {
			clitest.Has(t, "stderr", r.stderr, `"operation":"profile"`, "of 6 are in "+path+".points, and the same command goes on")
		}
		if _, err := os.Stat(path); (err == nil) != (at == 24) {
			t.Errorf("at %d: profile %v", at, err)
		}
		if at == 24 {
			readProfile(t, path)
		}
		r = runMain(t.Context(), options{env: []string{"HOME=/nowhere"}}, line...)
		if p := readProfile(t, path); r.code != 0 || len(p.Measured.Prefill.ISL)+len(p.Measured.Decode.ITL) != 6 {
			t.Errorf("at %d: %+v", at, r)
		}
	}
}

// Mistakes are found before anything is dialed, and failures say what to do.
// A profile is written where the planner of the cluster finds it, under the name that the cluster has for the model.
func TestProfileTeaches(t *testing.T) {
	s, w := newProfileServer(t), newWorld(t)
	w.agent(fakeConfig{})
	w.ok("up", "--prefill", "0", "--decode", "1")
	key := cluster.MeasuredKey(w.ns, "dynctl-tiny")
	if r := w.run(s.line("--teach", "qwen")...); r.code != exit.Failed || s.count() != 0 {
		t.Errorf("%d requests, %+v", s.count(), r)
	} else {
		clitest.Has(t, "stderr", r.stderr, "cannot teach the planner: the cluster has no model qwen", "models: dynctl-tiny")
	}
	// A run that ends early teaches nothing.
	s.at = 11
	ctx, done := contextThatEnds(t, s.stops)
	if r := w.with(ctx, options{}, s.line("--teach", "dynctl-tiny")...); r.code != exit.Interrupted {
		t.Errorf("%+v", r)
	}
	done()
	if _, err := w.store.Get(t.Context(), key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after a run that was stopped: %v", err)
	}
	clitest.Has(t, "stderr", w.ok(s.line("--teach", "dynctl-tiny")...).stderr, "the planner takes workers of dynctl-tiny to be as fast as "+s.URL)
	kv, err := w.store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	taught, err := profile.DecodeTaught(kv.Value)
	if err != nil || taught.Model != "dynctl-tiny" || taught.Server != s.URL || taught.Profile.Limits.KVTokens() != 2048 || taught.Profile.Measured.Decode == nil || time.Since(taught.Time) > time.Hour {
		t.Errorf("%+v, %v", taught, err)
	}
	if r := w.run("profile", "--forget", "dynctl-tiny", "--read-only"); r.code == 0 {
		t.Errorf("read-only: %+v", r)
	}
	clitest.Has(t, "stderr", w.ok("profile", "--forget", "dynctl-tiny").stderr, "the planner goes by what workers of dynctl-tiny show")
	if _, err := w.store.Get(t.Context(), key); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	clitest.Has(t, "stderr", w.ok("profile", "--forget", "dynctl-tiny").stderr, "had no measured profile")
	for _, line := range [][]string{{"profile", "--teach", ""}, {"profile", "--forget", ""}, {"profile", "--forget", "m", "--teach", "m"}} {
		if r := w.run(line...); r.code != exit.Usage {
			t.Errorf("%v: %+v", line, r)
		}
	}
}

func TestProfileUsage(t *testing.T) {
	for line, want := range map[string]string{
		"":                               "--kv-tokens: is needed with --url",
		"--kv-tokens 100":                "--max-num-seqs: is needed with --url",
		"--kv-tokens 0":                  "--kv-tokens: 0 is not between 1 and",
		"--kv-tokens 8 --max-num-seqs 1": "--kv-tokens: less than a block",
		"--kv-tokens 900 --max-num-seqs 1 --worker worker-1":         "--worker: has no use with --url",
		"--kv-tokens 900 --max-num-seqs 1 --budget 0s":               "--budget: must be greater than 0",
		"--kv-tokens 900 --max-num-seqs 1 --timeout 0s":              "--timeout: must be greater than 0",
		"--kv-tokens 900 --max-num-seqs 1 --again":                   "--again: needs --save",
		"--kv-tokens 900 --max-num-seqs 1 --devices 0":               "--devices: 0 is not between 1",
		"--kv-tokens 900 --max-num-seqs 1 --block-size 0":            "--block-size: 0 is not between 1",
		"--kv-tokens 900 --max-num-seqs 1 --max-model-len 999999999": "--max-model-len: 999999999 is not",
		"--kv-tokens 900 --max-num-seqs 1 more":                      "more",
	} {
		r := runMain(t.Context(), options{env: []string{"HOME=/nowhere"}}, append([]string{"profile", "--url", "http://127.0.0.1:1"}, strings.Fields(line)...)...)
		if r.code != exit.Usage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit %d, %s", line, r.code, r.stderr)
		}
	}
	r := runMain(t.Context(), options{env: []string{"HOME=/nowhere"}}, "profile", "--kv-tokens", "100")
	if r.code != exit.Usage || !strings.Contains(r.stderr, "--kv-tokens: is for a server at --url") {
		t.Errorf("%+v", r)
	}
	s := newProfileServer(t)
	for want, args := range map[string][]string{
		"no room for prompts":    {"--kv-tokens", "32", "--max-num-seqs", "1"},
		"too little is measured": {"--kv-tokens", "2048", "--max-num-seqs", "1", "--budget", "1ms"},
		"serves several models":  {"--kv-tokens", "2048", "--max-num-seqs", "1", "--model", ""},
	} {
		r := runMain(t.Context(), options{env: []string{"HOME=/nowhere"}}, append([]string{"profile", "--url", s.URL, "--model", "big"}, args...)...)
		if r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v", want, r)
		}
	}
}

// A worker of the cluster is asked by its instance, and computes prompts itself. One with other
// load is refused, and so is one of another role.
func TestProfileOfAWorker(t *testing.T) {
	w, s := newWorld(t), newProfileServer(t)
	cfg := fakeConfig{Chat: s.chat, MaxBatchTokens: 256}
	a := w.agent(cfg)
	w.up(1, 2)
	path := filepath.Join(t.TempDir(), "p.json")
	fails := func(want string, args ...string) {
		t.Helper()
		if r := w.run(append([]string{"profile", "--save", path}, args...)...); r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%v: %+v, want %q", args, r, want)
		}
	}
	fails("worker-1 is a worker for prefill", "--worker", "worker-1")
	fails("live workers: worker-1, worker-2, worker-3", "--worker", "worker-9")
	fails("no worker decodes for other", "--model", "other")
	r := w.run("profile", "--save", path, "--worker", "worker-3", "--budget", "2s")
	if r.code != 0 && r.code != exit.Failed {
		t.Fatalf("%+v", r)
	}
	kv, err := w.store.Get(t.Context(), cluster.StatusKey(w.ns, "worker-3"))
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.DecodeJSON[cluster.WorkerStatus](kv)
	ext, _ := s.asked[len(s.asked)-1]["nvext"].(map[string]any)
	if err != nil || len(s.asked) < 4 || ext["prefill"] != "local" || ext["decode_worker_id"] != float64(st.InstanceID) {
		t.Errorf("%d requests, the last with %v, %v", len(s.asked), ext, err)
	}
	text, err := os.ReadFile(path + ".points")
	if err != nil || !strings.Contains(string(text), `"server":"worker-3 of cluster lab"`) || !strings.Contains(string(text), `"max_num_batched_tokens":256`) {
		t.Errorf("%s, %v", text, err)
	}
	a.close()
	cfg.Sequences, cfg.Name = 2, "node-2"
	w.agent(cfg)
	w.up(1, 2)
	fails("the worker has other load: it has 2 sequences of others", "--worker", "worker-3", "--again")
}

// The measured costs are corrected by what the cluster has learned, within bounds.
func TestRefineAProfile(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	w.up(1, 1)
	path := filepath.Join(t.TempDir(), "p.json")
	limits := profile.Limits{KVBlocks: 100, BlockSize: 64, MaxSeqs: 8, MaxBatchTokens: 512, MaxContext: 6400}
	measured := profile.Profile{Version: 1, Name: "m", Devices: 1, Limits: limits, Step: profile.Costs{Step: 0.01, Token: 0.001}, Overheads: profile.Overheads{Frontend: 0.002}}
	measured.Measured.Prefill = &profile.PrefillTable{ISL: []float64{1, 2}, TTFT: []float64{1, 2}, Throughput: []float64{1, 1}}
	save := func() {
		t.Helper()
		var b bytes.Buffer
		if err := measured.Write(&b); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	save()
	learned := profile.Learned{Node: "node-1", Time: time.Now(), Unknown: []string{"kv", "overheads.frontend_s"}, Profile: profile.Profile{Version: 1, Name: "m", Devices: 1, Limits: limits, Step: profile.Costs{Step: 0.5}}}
	put := func() {
		t.Helper()
		if _, err := store.PutJSON(t.Context(), w.store, cluster.ProfileKey(w.ns), learned); err != nil {
			t.Fatal(err)
		}
	}
	put()
	fails := func(want string, args ...string) {
		t.Helper()
		if r := w.run(append([]string{"get", "profile"}, args...)...); r.code != exit.Failed || !strings.Contains(r.stderr, want) || r.stdout != "" {
			t.Errorf("%+v, want %q", r, want)
		}
	}
	fails("node-1 does not tell the steps that it has learned from", "--base", path)
	var samples []profile.Sample
	for range 400 { // twice as slow steps, and tokens that cost ten times as much
		samples = append(samples, profile.Sample{Work: profile.Work{Tokens: 2}, Seconds: 0.02 + 2*0.01}, profile.Sample{Work: profile.Work{Tokens: 500}, Seconds: 0.02 + 500*0.01})
	}
	o, err := profile.Observe(samples)
	if err != nil {
		t.Fatal(err)
	}
	learned.Observed = &o
	put()
	r := w.ok("get", "profile", "--base", path)
	p, err := profile.Read(strings.NewReader(r.stdout))
	if err != nil || p.Step.Token != 4*0.001 || p.Overheads.Frontend != 0.002 || p.Measured.Prefill != nil || p.Fitted != nil || !(p.Step.Step > 0.02 && p.Step.Step <= 0.04) {
		t.Errorf("%+v, %v", p, err)
	}
	clitest.Has(t, "notes", r.stderr, "of 800 observed windows, the measured costs are off by ", "token_s", "4 times or a quarter", "nothing has shown kv: 0")
	measured.Name = "other"
	save()
	fails(`is of "other", and the cluster has learned of "m"`, "--base", path)
	fails("no such file", "--base", path+"x")
}
