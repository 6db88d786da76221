package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/chat"
	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/openai"
)

// runChat runs dynctl chat against a fake frontend.
func runChat(t *testing.T, f *clitest.Frontend, o options, args ...string) result {
	t.Helper()
	o.env = append(o.env, "HOME=/nowhere")
	return runMain(t.Context(), o, append([]string{"chat", "--url", f.URL}, args...)...)
}

func TestChatInAPipe(t *testing.T) {
	f := clitest.NewFrontend(t, clitest.Says("Let me see. ", "A lease is \x1b[31ma promise.\n\nIt ends."))
	for name, run := range map[string]func() result{
		"argument":       func() result { return runChat(t, f, options{input: "not read"}, "What is", "a lease?") },
		"standard input": func() result { return runChat(t, f, options{input: "What is a lease?\n"}) },
		"named":          func() result { return runChat(t, f, options{}, "--model", "tiny", "-q", "What is a lease?") },
	} {
		r := run()
		if r.code != 0 || r.stdout != "A lease is \x1b[31ma promise.\n\nIt ends.\n" || r.stderr != "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for _, q := range f.Requests() {
		want := []openai.Message{{Role: "user", Content: "What is a lease?"}}
		if q.Model != "tiny" || !slices.Equal(q.Messages, want) || q.MaxTokens != 0 || q.Temperature != nil || q.Seed != nil {
			t.Errorf("asked %+v", q)
		}
	}
}

// On a terminal reasoning and figures are shown, and a model does not control it.
func TestChatOnATerminal(t *testing.T) {
	f := clitest.NewFrontend(t, clitest.Says("Let me see.", "A \x1b[31mlease\tends."))
	r := runChat(t, f, options{tty: true}, "hi", "--color", "never")
	if r.code != 0 || r.stdout != "reasoning:\nLet me see.\n\nA ?[31mlease\tends.\n" {
		t.Errorf("%+v", r)
	}
	clitest.Has(t, "stderr", r.stderr, "ttft ", " ms · ", "1,200 prompt (64 cached) + 7 answer tokens\n")
	r = runChat(t, f, options{tty: true}, "hi")
	clitest.Has(t, "colored stdout", r.stdout, "\x1b[2mreasoning:\x1b[0m\n", "\x1b[2mLet \x1b[0m")
	clitest.Has(t, "colored stderr", r.stderr, "\x1b[2mttft ")
	if r := runChat(t, f, options{tty: true}, "hi", "-q"); r.stderr != "" {
		t.Errorf("-q: %+v", r)
	}
}

func TestChatAsJSON(t *testing.T) {
	f := clitest.NewFrontend(t, clitest.Says("Hm.", "Fine."))
	r := runChat(t, f, options{}, "hi", "-o", "json", "--max-tokens", "9", "--temperature", "0", "--seed", "-3", "--system", "Be brief.")
	var got chat.Result
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != 0 {
		t.Fatalf("%v, %+v", err, r)
	}
	if got.Answer != "Fine." || got.Reasoning != "Hm." || got.Finish != "stop" || got.Model != "tiny" || got.RequestID != "r-8f21" || got.URL != f.URL {
		t.Errorf("%+v", got)
	}
	if got.TTFTMS == nil || *got.TTFTMS <= 0 || got.TotalMS < *got.TTFTMS || got.Usage.Completion != 7 || *got.Usage.Cached != 64 || got.Usage.Reasoning != nil {
		t.Errorf("%+v, usage %+v", got, got.Usage)
	}
	q := f.Requests()[0]
	if q.MaxTokens != 9 || *q.Temperature != 0 || *q.Seed != -3 || q.Messages[0] != (openai.Message{Role: "system", Content: "Be brief."}) {
		t.Errorf("asked %+v", q)
	}
	if r := runChat(t, f, options{}, "hi", "-o", "yaml"); !strings.Contains(r.stdout, "\nanswer: Fine.\n") {
		t.Errorf("yaml: %+v", r)
	}
}

// ran is an answer of a frontend that tells where it ran.
func ran(text, where string) http.HandlerFunc {
	return clitest.Streams(`data: {"choices":[{"delta":{"content":` + clitest.Quoted(text) + `},"finish_reason":"stop"}]}` + "\n\n" + `data: {"choices":[],"nvext":` + where + "}\n\ndata: [DONE]\n\n")
}

func TestChatSaysWhereItRan(t *testing.T) {
	const remote = `{"worker_id":{"prefill_worker_id":7,"decode_worker_id":9,"prefill_worker":"worker-1","decode_worker":"worker-3"},"timing":{"prefill":"remote","prefill_way":"queue","queue_ms":1.5,"prefill_ms":20,"ttft_ms":22,"total_ms":30,"moves":0}}`
	for where, want := range map[string]string{
		remote: " · worker-3, prefilled by worker-1 (queue)\n",
		`{"worker_id":{"decode_worker_id":9,"decode_worker":"worker-3"},"timing":{"prefill":"local","prefill_why":"short","moves":0}}`: " · worker-3, prefilled there (short)\n",
		`{"worker_id":{"decode_worker_id":9,"decode_worker":"worker-3"},"timing":{"prefill":"local","moves":2}}`:                       " · worker-3, moved 2 times\n",
		`{"worker_id":{"decode_worker":"worker-3","prefill_worker":"worker-1"}}`:                                                       " · worker-3, prefilled by worker-1\n",
		`{}`: " ms\n",
	} {
		f := clitest.NewFrontend(t, ran("Fine.", where))
		r := runChat(t, f, options{tty: true}, "hi", "--color", "never")
		if r.code != 0 || r.stdout != "Fine.\n" || !strings.HasPrefix(r.stderr, "ttft ") || !strings.HasSuffix(r.stderr, want) {
			t.Errorf("%s: %+v", where, r)
		}
		if q := f.Requests()[0]; q.NVExt == nil || !slices.Equal(q.NVExt.ExtraFields, []string{"worker_id", "timing"}) {
			t.Errorf("asked %+v", q)
		}
	}
	var got chat.Result
	r := runChat(t, clitest.NewFrontend(t, ran("Fine.", remote)), options{}, "hi", "-o", "json")
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || got.Workers == nil || got.Workers.Prefill != "worker-1" || got.Timing == nil || got.Timing.PrefillMS != 20 {
		t.Errorf("%v, %+v", err, r)
	}
	if r := runChat(t, clitest.NewFrontend(t, clitest.Says("", "Fine.")), options{}, "hi", "-o", "json"); !strings.Contains(r.stdout, `"workers": null`) {
		t.Errorf("a frontend that does not report them: %+v", r)
	}
}

// A frontend of others that refuses the question where it ran is asked without it.
func TestChatWithAForeignFrontend(t *testing.T) {
	refused := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":{"message":"Unrecognized request argument supplied: nvext","type":"invalid_request_error","param":null,"code":null}}`))
	}
	f := clitest.NewFrontend(t, refused, clitest.Says("", "One."), clitest.Says("", "Two."))
	r := runChat(t, f, options{tty: true, input: "first\nsecond\n"}, "--color", "never")
	if r.code != 0 || !strings.Contains(r.stdout, "> One.\n> Two.\n") {
		t.Errorf("%+v", r)
	}
	var asked []bool
	for _, q := range f.Requests() {
		asked = append(asked, q.NVExt != nil)
	}
	if !slices.Equal(asked, []bool{true, false, false}) {
		t.Errorf("asked with the extension: %v", asked)
	}
}

func TestChatWithFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a, b := write("a.txt", "one\n"), write("b.md", "```\ncode\n```")
	f := clitest.NewFrontend(t, clitest.Says("", "ok"))
	r := runChat(t, f, options{input: "piped"}, "-f", a, "--file", b, "-f", "-", "--system", "@"+write("sys", " Be brief.\n"), "Compare.")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	want := []openai.Message{
		{Role: "system", Content: "Be brief."},
		{Role: "user", Content: "a.txt:\n```\none\n```\n\nb.md:\n````\n```\ncode\n```\n````\n\nstandard input:\n```\npiped\n```\n\nCompare."},
	}
	if got := f.Requests()[0].Messages; !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
	for _, tc := range []struct{ name, want string }{
		{write("binary", "a\x00b"), "is not text in UTF-8"},
		{write("latin", "gr\xfc\xdfe"), "is not text in UTF-8"},
		{write("long", strings.Repeat("x", chat.MaxText+1)), "is longer than 1048576 bytes"},
		{filepath.Join(dir, "absent"), "no such file"},
	} {
		r := runChat(t, f, options{}, "-f", tc.name, "hi")
		if r.code != exit.Failed || !strings.Contains(r.stderr, "dynctl: cannot chat: --file: ") || !strings.Contains(r.stderr, tc.want) {
			t.Errorf("%s: %+v", tc.name, r)
		}
	}
}

func TestChatWithImages(t *testing.T) {
	var body []byte
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			_, _ = w.Write([]byte(`{"object":"list","data":[{"id":"seer","object":"model"}]}`))
			return
		}
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a door\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"))
	}))
	defer srv.Close()
	dir := t.TempDir()
	for name, content := range map[string]string{"door.png": "\x89PNG\r\n\x1a\n picture", "notes.txt": "no picture"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) result {
		return runMain(t.Context(), options{env: []string{"HOME=/nowhere"}}, append([]string{"chat", "--url", srv.URL}, args...)...)
	}
	r := run("--image", filepath.Join(dir, "door.png"), "--image", "https://example.com/x.jpg", "What is it?")
	if r.code != 0 || r.stdout != "a door\n" {
		t.Errorf("%+v", r)
	}
	want := `"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgogcGljdHVyZQ=="}},` +
		`{"type":"image_url","image_url":{"url":"https://example.com/x.jpg"}},{"type":"text","text":"What is it?"}]}]`
	if !strings.Contains(string(body), want) {
		t.Errorf("sent %s", body)
	}
	if r := run("--image", filepath.Join(dir, "door.png"), "-q", ""); r.code != 0 || strings.Contains(string(body), `"text"`) {
		t.Errorf("without words: %+v, %s", r, body)
	}
	// The beginning of a file tells that it is no image: the rest is not read.
	if err := os.WriteFile(filepath.Join(dir, "disk.img"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "disk.img"), 1<<30+1); err != nil {
		t.Fatal(err)
	}
	for arg, want := range map[string]string{filepath.Join(dir, "disk.img"): "is no image, but application/octet-stream", dir: "--image: read " + dir + ": is a directory", filepath.Join(dir, "notes.txt"): "is no image, but text/plain", filepath.Join(dir, "none.png"): "no such file", "": "no file given"} {
		if r := run("--image", arg, "What?"); r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%q: %+v", arg, r)
		}
	}
}

func TestChatWaitsForABusyFrontend(t *testing.T) {
	f := clitest.NewFrontend(t, clitest.Refuses(503, "1", "", "No worker is ready to serve this model."), clitest.Says("", "Fine."))
	r := runChat(t, f, options{}, "hi")
	if r.code != 0 || r.stdout != "Fine.\n" || r.stderr != "dynctl: note: No worker is ready to serve this model (status 503); asking again in 1s, for at most 2m\n" {
		t.Errorf("%+v", r)
	}
	// Only as long as it may.
	f = clitest.NewFrontend(t, clitest.Refuses(503, "60", "", "No worker is ready."))
	r = runChat(t, f, options{}, "hi", "--timeout", "2s")
	if r.code != exit.Failed || r.stderr != "dynctl: cannot chat: No worker is ready (status 503)\n  try: dynctl ps\n   or: --timeout 10m, to wait longer\n" || len(f.Requests()) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestChatErrors(t *testing.T) {
	half := "data: {\"choices\":[{\"delta\":{\"content\":\"half of\"}}]}\n\n"
	for _, tc := range []struct {
		name   string
		h      http.HandlerFunc
		args   []string
		code   int
		stdout string
		stderr []string
	}{
		{"broken off", clitest.Streams(half), nil, exit.Failed, "half of\n", []string{"dynctl: cannot chat: the answer broke off: the connection was closed\n", "  try: dynctl ps"}},
		{
			"error event", clitest.Streams(half + "data: {\"error\":{\"message\":\"The engine failed.\"}}\n\ndata: [DONE]\n\n"), nil, exit.Failed, "half of\n",
			[]string{"the answer broke off: The engine failed\n"},
		},
		{"silent", clitest.Hangs("half of"), []string{"--timeout", "300ms"}, exit.Failed, "half of\n", []string{"no answer in time: 300ms passed", "try: --timeout 10m"}},
		{"refused", clitest.Refuses(400, "", "context_length_exceeded", "Too long."), nil, exit.Failed, "", []string{"cannot chat: Too long (status 400)", "try: a shorter prompt"}},
		{"no key", clitest.Refuses(401, "", "invalid_api_key", "Incorrect API key provided."), nil, exit.Failed, "", []string{"try: export DYNAMOD_FRONTEND_API_KEY="}},
		{"other model", nil, []string{"--model", "big"}, exit.Failed, "", []string{"does not serve the model big\n  served: tiny\n  try: dynctl chat --model tiny\n"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := runChat(t, clitest.NewFrontend(t, tc.h), options{}, append(tc.args, "hi")...)
			if r.code != tc.code || r.stdout != tc.stdout {
				t.Errorf("%+v", r)
			}
			clitest.Has(t, "stderr", r.stderr, tc.stderr...)
			if r := runChat(t, clitest.NewFrontend(t, tc.h), options{}, append(tc.args, "hi", "-o", "json")...); r.code != tc.code || r.stdout != "" {
				t.Errorf("as JSON: %+v", r)
			}
		})
	}
	f := clitest.NewFrontend(t)
	f.Models = []string{"a", "b"}
	if r := runChat(t, f, options{}, "hi"); r.code != exit.Usage || !strings.Contains(r.stderr, "serves several models\n  served: a, b\n  try: dynctl chat --model a\n") {
		t.Errorf("several models: %+v", r)
	}
	f.Models = nil
	if r := runChat(t, f, options{}, "hi"); r.code != exit.Failed || !strings.Contains(r.stderr, "serves no model at present\n  try: dynctl ps\n") {
		t.Errorf("no model: %+v", r)
	}
	f.Close()
	if r := runChat(t, f, options{}, "hi"); r.code != exit.Unreachable || !strings.Contains(r.stderr, "frontend not reachable: ") || strings.Count(r.stderr, f.URL) != 1 {
		t.Errorf("unreachable: %+v", r)
	}
}

// The frontend is found as the nodes publish it.
func TestChatFindsTheFrontend(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	w.up(0, 1)
	r := w.run("chat", "hi") // the fake agent lists models and cannot chat
	if r.code != exit.Failed || !strings.Contains(r.stderr, "not the answer of an OpenAI-compatible frontend") {
		t.Errorf("%+v", r)
	}
	if r := w.ok("__complete", "chat", "--model", ""); !strings.HasPrefix(r.stdout, "dynctl-tiny\n") {
		t.Errorf("--model <tab>: %q", r.stdout)
	}
}

func TestChatWithoutAFrontend(t *testing.T) {
	w := newWorld(t)
	if r := w.run("chat", "hi"); r.code != exit.Unreachable || !strings.Contains(r.stderr, "no node of cluster lab is up") {
		t.Errorf("no node: %+v", r)
	}
	w.agent(fakeConfig{Port: -1})
	if r := w.run("chat", "hi"); r.code != exit.Unreachable || !strings.Contains(r.stderr, "no node of cluster lab has an HTTP frontend") {
		t.Errorf("no frontend: %+v", r)
	}
}
