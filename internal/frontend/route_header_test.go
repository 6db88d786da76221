package frontend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/router"
)

func reader(t *testing.T, b body) io.Reader {
	t.Helper()
	raw, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(raw)
}

// An answer tells its route to clients that ask for it, streamed or not, and to no others.
func TestAnswerTellsItsRoute(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("abc"))
	w.fake("worker-2", say("abc"))
	f := w.frontend().waitModel(2)
	prompt := strings.Repeat("x", 4*testBlock+1)
	for _, streamed := range []bool{false, true} {
		for path, b := range map[string]body{
			"/v1/completions":      textBody(body{"prompt": prompt, "stream": streamed}),
			"/v1/chat/completions": chatBody(body{"stream": streamed}),
		} {
			resp := f.do(http.MethodPost, path, reader(t, b), "x-dynctl-route", "1")
			var told routeTold
			if err := json.Unmarshal([]byte(resp.Header.Get("x-dynctl-route")), &told); err != nil {
				t.Fatalf("%s, streamed %t: %v in %q", path, streamed, err, resp.Header)
			}
			readAll(t, resp)
			if !strings.HasPrefix(told.Worker, "worker-") || told.Policy != router.LeastLoaded || told.Candidates != 2 || told.Found == nil || told.Prefill != "local" {
				t.Errorf("%s, streamed %t: %+v", path, streamed, told)
			}
			if kept := f.decisions.find(told.Request, 1); len(kept) != 1 || kept[0].Chosen != told.Worker || kept[0].Blocks != told.Blocks {
				t.Errorf("%+v, but decided was %+v", told, kept)
			}
			for _, no := range []string{"", "0"} {
				if resp := f.do(http.MethodPost, path, reader(t, b), "x-dynctl-route", no); resp.Header.Get("x-dynctl-route") != "" || readAll(t, resp) == "" {
					t.Errorf("told without being asked: %q", resp.Header)
				}
			}
		}
	}
	if e := failureOf(t, f.do(http.MethodPost, "/v1/completions", reader(t, textBody(nil)), "x-dynctl-route", "please")); !strings.Contains(e.Error.Message, "neither true nor false") {
		t.Errorf("%+v", e)
	}
}

// A request may name the policy that routes it; others keep the current one.
func TestRequestNamesItsPolicy(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("abc"))
	f := w.frontend().waitModel(1)
	for header, want := range map[string]string{"": router.LeastLoaded, router.RoundRobin: router.RoundRobin, router.LeastLoaded: router.LeastLoaded} {
		resp := f.do(http.MethodPost, "/v1/completions", reader(t, textBody(nil)), "x-dynctl-route", "true", "x-dynctl-router-policy", header)
		var told routeTold
		if err := json.Unmarshal([]byte(resp.Header.Get("x-dynctl-route")), &told); err != nil || told.Policy != want {
			t.Errorf("header %q: %+v, %v", header, told, err)
		}
		readAll(t, resp)
	}
	resp := f.do(http.MethodPost, "/v1/completions", reader(t, textBody(nil)), "x-dynctl-router-policy", "cheapest")
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("status %d", resp.StatusCode)
	}
	e := failureOf(t, resp)
	for _, known := range router.Policies() {
		if !strings.Contains(e.Error.Message, known) {
			t.Errorf("%q does not name %s", e.Error.Message, known)
		}
	}
}

// With the policy direct, a request must name its decode worker: in the body or in Dynamo's
// header, which wins. Nobody else gets it.
func TestDirect(t *testing.T) {
	w := newWorld(t)
	one, two := w.fake("worker-1", say("abc")), w.fake("worker-2", say("abc"))
	f := w.configured(func(c *Config) { c.Settings = settings(router.Direct) }).waitModel(2)
	id := func(fk *fake) string { return fmt.Sprint(int64(fk.drt.ID())) }
	for _, tc := range []struct {
		name, header string
		nvext        body
		want         string // worker, or a part of the error
	}{
		{"the body names it", "", body{"decode_worker_id": one.drt.ID()}, "worker-1"},
		{"the header names it", id(two), nil, "worker-2"},
		{"the header wins", id(two), body{"decode_worker_id": one.drt.ID()}, "worker-2"},
		{"nobody does", "", nil, "must name its decode worker, in 'nvext.decode_worker_id' or in the header X-Dynamo-Worker-Instance-Id"},
		{"no such worker", "77", nil, "no decode worker 77"},
		{"no such name", "two", nil, "no decode worker two"},
		{"too long", strings.Repeat("1", 300), nil, "X-Dynamo-Worker-Instance-Id"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp := f.do(http.MethodPost, "/v1/completions", reader(t, textBody(body{"nvext": tc.nvext})), "x-dynctl-route", "1", workerHeader, tc.header)
			if strings.HasPrefix(tc.want, "worker-") {
				var told routeTold
				if err := json.Unmarshal([]byte(resp.Header.Get("x-dynctl-route")), &told); err != nil || told.Worker != tc.want || told.Policy != router.Direct {
					t.Errorf("%+v %v", told, err)
				}
				wholeAnswer(t, resp)
				return
			}
			if e := failureOf(t, resp); resp.StatusCode != http.StatusBadRequest || !strings.Contains(e.Error.Message, tc.want) {
				t.Errorf("status %d, %+v", resp.StatusCode, e)
			}
		})
	}
	// Another policy for one request: it need not name a worker.
	wholeAnswer(t, f.do(http.MethodPost, "/v1/completions", reader(t, textBody(nil)), "x-dynctl-router-policy", "round_robin"))
}
