package outside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model/minitok"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/tokenizer"
)

// serviceAt starts a service.
func serviceAt(t *testing.T, h http.HandlerFunc) *Service {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	s, err := NewService(srv.URL+"/x", srv.URL+"/ready")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// answers is a service that always says the same.
func answers(status int, kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func TestServiceAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		status     int
		kind, body string
		items      []string
		err        string
		as         requestplane.Kind // of the error; empty: not a remote one
	}{
		"a document":             {200, "application/json; charset=utf-8", `{"a":1}`, []string{`{"a":1}`}, "", ""},
		"a large number":         {200, typeJSON, `7587888160958627365`, []string{`7587888160958627365`}, "", ""},
		"nothing":                {204, "", "", nil, "", ""},
		"lines":                  {200, requestplane.TypeLines, "{\"item\":1}\n\n{\"item\":[\"x\"]}\n{\"end\":true}\n", []string{"1", `["x"]`}, "", ""},
		"no item":                {200, requestplane.TypeLines, "{\"end\":true}", nil, "", ""},
		"lines after the end":    {200, requestplane.TypeLines, "{\"end\":true}\n{\"item\":1}\n", nil, "", ""},
		"broken off":             {200, requestplane.TypeLines, "{\"item\":1}\n", []string{"1"}, "it broke off", ""},
		"a null":                 {200, requestplane.TypeLines, "{\"item\":null}\n{\"end\":true}\n", []string{"null"}, "", ""},
		"another object":         {200, requestplane.TypeLines, "{\"items\":1}\n", nil, "a line has no", ""},
		"no JSON in a line":      {200, requestplane.TypeLines, "item\n", nil, "a line is no JSON", ""},
		"no JSON":                {200, typeJSON, "", nil, "body is no JSON", ""},
		"two documents":          {200, typeJSON, "1 2", nil, "more than one value", ""},
		"a page":                 {200, "text/html", "<p>", nil, "its Content-Type is", ""},
		"an error in the middle": {200, requestplane.TypeLines, "{\"item\":1}\n{\"error\":{\"kind\":\"overloaded\",\"message\":\"full\"}}\n", []string{"1"}, "overloaded: full", requestplane.KindOverloaded},
		"a kind of servers only": {200, requestplane.TypeLines, "{\"error\":{\"kind\":\"draining\",\"message\":\"x\"}}\n", nil, "internal: x", requestplane.KindInternal},
		"refused":                {400, "text/plain", "no such field\n", nil, "400 Bad Request: no such field", requestplane.KindInvalidArgument},
		"refused with a kind":    {500, typeJSON, `{"error":{"kind":"unavailable","message":"no disk"}}`, nil, "unavailable: no disk", requestplane.KindUnavailable},
		"busy":                   {429, "", "", nil, "429", requestplane.KindOverloaded},
		"down":                   {503, "", "", nil, "503", requestplane.KindUnavailable},
		"failed":                 {500, "", strings.Repeat("x", 2*maxReason), nil, "500", requestplane.KindInternal},
		"elsewhere":              {302, "", "", nil, "302", requestplane.KindInternal},
	} {
		s := serviceAt(t, answers(tc.status, tc.kind, tc.body))
		var items []string
		err := s.Handle(t.Context(), &requestplane.Request{ID: "r"}, func(item any) error {
			text, err := protocol.ToJSON([]byte(item.(requestplane.Raw)))
			items = append(items, string(text))
			return err
		})
		var remote *requestplane.RemoteError
		errors.As(err, &remote)
		switch {
		case (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err):
			t.Errorf("%s: %v", name, err)
		case (remote != nil) != (tc.as != "") || remote != nil && (remote.Kind != tc.as || len(remote.Message) > 2*maxReason):
			t.Errorf("%s: %#v", name, remote)
		case !slices.Equal(items, tc.items):
			t.Errorf("%s: %q", name, items)
		}
	}
}

func TestServiceLimitsAnswers(t *testing.T) {
	for kind, body := range map[string]string{
		typeJSON:               `"` + strings.Repeat("x", 100) + `"`,
		requestplane.TypeLines: `{"item":"` + strings.Repeat("x", 100) + "\"}\n{\"end\":true}\n",
	} {
		s := serviceAt(t, answers(200, kind, body))
		take := func(any) error { return nil }
		if err := s.Handle(t.Context(), &requestplane.Request{}, take); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		s.limit = 64
		if err := s.Handle(t.Context(), &requestplane.Request{}, take); !errors.Is(err, requestplane.ErrTooLarge) {
			t.Errorf("%s over the limit: %v", kind, err)
		}
	}
}

func TestServiceGetsTheRequest(t *testing.T) {
	s := serviceAt(t, func(w http.ResponseWriter, r *http.Request) {
		var body strings.Builder
		buf := make([]byte, 1<<10)
		for n, err := r.Body.Read(buf); n > 0 || err == nil; n, err = r.Body.Read(buf) {
			body.Write(buf[:n])
		}
		w.Header().Set("Content-Type", typeJSON)
		_, _ = fmt.Fprintf(w, "%q", strings.Join([]string{
			r.Method, r.URL.Path, r.Header.Get("X-Request-Id"), r.Header.Get("traceparent"), r.Header.Get("secret"), body.String(),
		}, " "))
	})
	body, err := protocol.FromJSON([]byte(`{"a":7587888160958627365}`))
	if err != nil {
		t.Fatal(err)
	}
	var got string
	r := &requestplane.Request{ID: "r1", Headers: map[string]string{"traceparent": "00-1", "secret": "s"}, Body: body}
	err = s.Handle(t.Context(), r, func(item any) error { return protocol.Unmarshal([]byte(item.(requestplane.Raw)), &got) })
	if want := `POST /x r1 00-1  {"a":7587888160958627365}`; err != nil || got != want {
		t.Errorf("the service got %q, %v", got, err)
	}
}

// The caller's end ends the request at the service, whether or not its answer has begun.
func TestServiceHearsOfTheEnd(t *testing.T) {
	why := errors.New("the caller left")
	for _, begun := range []bool{false, true} {
		gone, asked := make(chan struct{}), make(chan struct{})
		s := serviceAt(t, func(w http.ResponseWriter, r *http.Request) {
			if begun {
				w.Header().Set("Content-Type", requestplane.TypeLines)
				_, _ = w.Write([]byte("{\"item\":1}\n"))
				_ = http.NewResponseController(w).Flush()
			}
			close(asked)
			<-r.Context().Done()
			close(gone)
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { <-asked; cancel(why) }()
		if err := s.Handle(ctx, &requestplane.Request{}, func(any) error { return nil }); !errors.Is(err, why) {
			t.Errorf("begun %t: %v", begun, err)
		}
		<-gone
	}
}

func TestServiceIsNotThere(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	s, err := NewService(srv.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("it accepts connections: %v", err)
	}
	srv.Close()
	if err := s.Check(t.Context()); err == nil {
		t.Error("it accepts no connections, and is ready")
	}
	var remote *requestplane.RemoteError
	err = s.Handle(t.Context(), &requestplane.Request{}, func(any) error { return nil })
	if !errors.As(err, &remote) || remote.Kind != requestplane.KindUnavailable || strings.Contains(remote.Message, "Post ") {
		t.Errorf("a request: %v", err)
	}
}

func TestServiceReady(t *testing.T) {
	status := 200
	s := serviceAt(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/ready" {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		w.WriteHeader(status)
	})
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	for _, status = range []int{302, 404, 503} {
		if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), fmt.Sprint(status)) {
			t.Errorf("status %d: %v", status, err)
		}
	}
}

func TestURLsOfServices(t *testing.T) {
	for _, tc := range [][2]string{
		{"", ""}, {"127.0.0.1:9000", ""}, {"ftp://a", ""}, {"http:///x", ""}, {"http://u:p@a", ""}, {"http://a", "/ready"}, {"http://a", "http://u@a"}, {"http://%zz", ""},
	} {
		if _, err := NewService(tc[0], tc[1]); err == nil {
			t.Errorf("%q is taken", tc)
		}
	}
}

func TestServiceGenerates(t *testing.T) {
	tok, err := minitok.Load(minitok.MinVocab)
	if err != nil {
		t.Fatal(err)
	}
	files, err := tok.Files(64)
	if err != nil {
		t.Fatal(err)
	}
	known, err := tokenizer.Load(files["tokenizer.json"])
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ body, text, err string }{
		"text":         {`{"item":{"text":"ab"}}` + "\n" + `{"item":{"text":" c"}}` + "\n" + `{"end":true}`, "ab c", ""},
		"tokens":       {fmt.Sprintf(`{"item":{"token_ids":%s}}`+"\n"+`{"end":true}`, strings.ReplaceAll(fmt.Sprint(known.Encode("hi", false)), " ", ",")), "hi", ""},
		"neither":      {`{"item":{}}`, "", "it has neither token_ids nor text"},
		"both":         {`{"item":{"text":"a","token_ids":[1]}}`, "", "or both"},
		"unknown":      {`{"item":{"token_ids":[99999]}}`, "", "no token 99999"},
		"not a number": {`{"item":{"token_ids":[-1]}}`, "", "it has neither"},
	} {
		s := serviceAt(t, answers(200, requestplane.TypeLines, tc.body))
		var got []uint32
		err := s.Generate(t.Context(), &Prompt{ID: "r", Tokens: []uint32{1}, Tokenizer: known}, func(tokens ...uint32) error {
			got = append(got, tokens...)
			return nil
		})
		if known.Decode(got, false) != tc.text || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %q, %v", name, known.Decode(got, false), err)
		}
	}
}

// What a service says must not break anything.
func FuzzServiceLines(f *testing.F) {
	for _, seed := range []string{"{\"item\":1}\n{\"end\":true}\n", "{\"error\":{}}", "null\n", "[]\n", "\x00", "{\"item\":"} {
		f.Add(seed)
	}
	s := &Service{limit: 1 << 10}
	f.Fuzz(func(t *testing.T, text string) {
		items := 0
		err := s.readLines(strings.NewReader(text), func(item json.RawMessage) error {
			items++
			_, err := protocol.FromJSON(item)
			return err
		})
		if err == nil && !strings.Contains(text, `"end"`) && !strings.Contains(strings.ToLower(text), "end") && !strings.Contains(text, `\u`) {
			t.Errorf("%q is a whole answer of %d items", text, items)
		}
	})
}
