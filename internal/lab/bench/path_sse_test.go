package bench

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model"
)

const (
	testRole  = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}` + "\n\n"
	testText  = `data: {"choices":[{"index":0,"delta":{"content":"a \"word\""},"finish_reason":null}],"usage":null}` + "\n\n"
	testUsage = `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":7}}` + "\n\n"
	testDone  = "data: [DONE]\n\n"
)

func TestSSEClient(t *testing.T) {
	for _, tc := range []struct {
		name           string
		status         int
		body           string
		events, tokens int
		err            string
	}{
		{"whole", 200, testRole + testText + ": comment\n\n" + testText + testUsage + testDone, 2, 7, ""},
		{"no text", 200, testRole + testUsage + testDone, 0, 7, ""},
		{"broken off", 200, testRole + testText, 1, 0, "the stream broke off"},
		{"error event", 200, testRole + `data: {"error":{"message":"no"}}` + "\n\n", 0, 0, "the stream broke off"},
		{"refused", 503, `{"error":{}}`, 0, 0, `status 503: {"error":{}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v1/chat/completions" || r.Method != http.MethodPost {
					t.Errorf("%s %s", r.Method, r.URL.Path)
				}
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			}))
			defer srv.Close()
			c := newSSEClient()
			defer c.close()
			got, err := c.to(srv.URL).answer(t.Context(), question{body: []byte("{}")})
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("got error %v, want %q", err, tc.err)
			}
			if err == nil && (got.events != tc.events || got.tokens != tc.tokens || len(got.gaps) != max(tc.events-1, 0)) {
				t.Errorf("got %+v, want %d events, %d tokens", got, tc.events, tc.tokens)
			}
		})
	}
}

func TestFloor(t *testing.T) {
	f, err := startFloor(5)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	c := newSSEClient()
	defer c.close()
	for range 2 {
		a, err := c.to(f.url).answer(t.Context(), question{body: []byte("{}"), output: 5})
		if err != nil || a.events != 5 || a.tokens != 5 {
			t.Errorf("%+v, %v, want 5 events of a token", a, err)
		}
	}
}

// A load refuses answers of the wrong length: they would be faster for nothing.
func TestLoadChecksLengths(t *testing.T) {
	home := t.TempDir()
	dir, err := model.Builtin(home)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPathBench(&session{home: home}, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	f, err := startFloor(5)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	l := load{streams: 2, requests: 1, prompt: 8, output: 6, ask: p.ask}
	if _, err := l.run(t.Context(), p.client.to(f.url)); !errors.Is(err, errTokens) {
		t.Errorf("got %v, want %v", err, errTokens)
	}
	l.output = 5
	s, err := l.run(t.Context(), p.client.to(f.url))
	if err != nil || s[keyRate] <= 0 || s[keyTTFT+"_p50"] <= 0 {
		t.Errorf("got %v, %v", s, err)
	}
}

func TestQuestion(t *testing.T) {
	home := t.TempDir()
	dir, err := model.Builtin(home)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPathBench(&session{home: home}, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	a, err := p.ask.question(t.Context(), 50, 3)
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.ask.question(t.Context(), 50, 3)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.tokens) < 50 || len(a.tokens) > 100 || string(a.body) == string(b.body) {
		t.Errorf("%d tokens\n%s\n%s", len(a.tokens), a.body, b.body)
	}
}
