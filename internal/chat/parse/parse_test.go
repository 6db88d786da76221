package parse_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/chat/parse"
)

// tools lists the tools of all tests.
var tools = []parse.Tool{
	{Name: "get_weather", Parameters: json.RawMessage(`{"type":"object","properties":{
		"city":{"type":"string"},"days":{"type":"integer"},"wind":{"type":"number"},"metric":{"type":"boolean"},
		"tags":{"type":"array"},"where":{"type":"object"},"unit":{"enum":["c","f"]},
		"color":{"$ref":"#/$defs/Color"},"box":{"allOf":[{"$ref":"#/$defs/a~1b"}],"nullable":true},"lost":{"$ref":"#/$defs/none"},"loop":{"$ref":"#/properties/loop"},
		"note":{"anyOf":[{"type":"string"},{"type":"null"}]},"size":{"type":["integer","null"]}},
		"$defs":{"Color":{"enum":[1,2]},"a/b":{"type":"object"}}}`)},
	{Name: "get_time", Parameters: json.RawMessage(`{"type":"object","properties":{}}`)},
	{Name: "broken_schema", Parameters: json.RawMessage(`[1`)},
}

// answer is the parsed content, reasoning and calls of a whole text.
type answer struct {
	content, reasoning string
	calls              []call
}

type call struct {
	id, name, args string
	broken         bool
}

func (a answer) String() string {
	s := fmt.Sprintf("content %q", a.content)
	if a.reasoning != "" {
		s += fmt.Sprintf(" reasoning %q", a.reasoning)
	}
	for _, c := range a.calls {
		s += fmt.Sprintf("\n  call %s %q %s broken %v", c.id, c.name, c.args, c.broken)
	}
	return s
}

// reader puts an answer together and checks the order of its events.
type reader struct {
	answer
	open bool
	err  error
}

func (r *reader) take(events []parse.Event) {
	for _, e := range events {
		last := len(r.calls) - 1
		switch {
		case e.Kind == parse.Content && e.Text != "":
			r.content += e.Text
		case e.Kind == parse.Reasoning && e.Text != "":
			r.reasoning += e.Text
		case e.Kind == parse.CallBegin && e.Call == last+1 && !r.open && e.Name != "":
			r.calls = append(r.calls, call{id: e.ID, name: e.Name})
			r.open = true
		case e.Kind == parse.CallArguments && e.Call == last && r.open && e.Text != "":
			r.calls[last].args += e.Text
		case e.Kind == parse.CallEnd && e.Call == last && r.open:
			r.calls[last].broken = e.Broken
			r.open = false
		default:
			r.err = fmt.Errorf("event %+v after %v", e, r.answer)
		}
	}
}

// options returns the options of a test: "tool", "/reasoning" or "tool/reasoning".
func options(parsers string) parse.Options {
	tool, reasoning, _ := strings.Cut(parsers, "/")
	n := 0
	return parse.Options{Tool: tool, Reasoning: reasoning, Tools: tools, NewID: func(short bool) string {
		if n++; short {
			return fmt.Sprint("short", n)
		}
		return fmt.Sprint("id", n)
	}}
}

// read parses a text that comes in pieces.
func read(t testing.TB, o parse.Options, pieces ...string) answer {
	t.Helper()
	p, err := parse.New(o)
	if err != nil {
		t.Fatal(err)
	}
	var r reader
	for _, piece := range pieces {
		r.take(p.Feed(piece))
	}
	r.take(p.Finish())
	if r.err != nil || r.open {
		t.Errorf("reading %q: %v, open %v", pieces, r.err, r.open)
	}
	whole := len(r.calls) > 0
	for _, c := range r.calls {
		if c.broken {
			whole = false
		} else if !json.Valid([]byte(c.args)) || c.args[0] != '{' {
			t.Errorf("reading %q: arguments %q are not an object", pieces, c.args)
		}
	}
	if p.Called() != whole {
		t.Errorf("reading %q: Called is %v", pieces, p.Called())
	}
	return r.answer
}

// example is a text and its meaning.
type example struct {
	name, parsers, text string
	want                answer
}

func check(t *testing.T, examples []example) {
	t.Helper()
	for _, e := range examples {
		t.Run(e.parsers+"/"+e.name, func(t *testing.T) {
			if got := read(t, options(e.parsers), e.text); got.String() != e.want.String() {
				t.Errorf("%q\n got %v\nwant %v", e.text, got, e.want)
			}
			splits(t, options, e.parsers, e.text)
			cuts(t, e)
		})
	}
}

// cuts checks the beginnings of a text of whole calls, as they come from a limit of tokens:
// once a call has begun, nothing of it or of a later one is content.
func cuts(t *testing.T, e example) {
	t.Helper()
	for _, c := range e.want.calls {
		if c.broken {
			return
		}
	}
	tool, _, _ := strings.Cut(e.parsers, "/")
	asJSON := !strings.Contains("qwen3_coder minimax_m2 deepseek_v3_2 glm45 glm47 pythonic", tool) // the others' arguments are not written as JSON
	for n := range len(e.text) {
		got := read(t, options(e.parsers), e.text[:n])
		if len(got.calls) == 0 && tool != parse.List {
			continue
		}
		if !strings.HasPrefix(e.want.content, got.content) || len(got.calls) > len(e.want.calls) {
			t.Fatalf("cut at %d: %q\n got %v\nwant a beginning of %v", n, e.text[:n], got, e.want)
		}
		for i, c := range got.calls {
			if full := e.want.calls[i]; c.name != full.name || asJSON && !strings.HasPrefix(full.args, c.args) || c.broken && i < len(got.calls)-1 {
				t.Fatalf("cut at %d: %q\n got %v\nwant a beginning of %v", n, e.text[:n], got, e.want)
			}
		}
	}
}

// splits checks that the way a text is cut does not matter: byte by byte, into two
// pieces everywhere, and into pieces of a few sizes.
func splits(t *testing.T, options func(string) parse.Options, parsers, text string) {
	t.Helper()
	want := read(t, options(parsers), text).String()
	compare := func(pieces []string) {
		t.Helper()
		if got := read(t, options(parsers), pieces...).String(); got != want {
			t.Fatalf("in pieces %q\n got %s\nwant %s", pieces, got, want)
		}
	}
	for i := range len(text) {
		compare([]string{text[:i], text[i:]})
	}
	for _, n := range []int{1, 2, 3, 7} {
		var pieces []string
		for rest := text; rest != ""; {
			k := min(n, len(rest))
			pieces = append(pieces, rest[:k])
			rest = rest[k:]
		}
		compare(pieces)
	}
}

// said is an answer without calls.
func said(content string) answer { return answer{content: content} }

// called is an answer of calls given as name and arguments.
func called(content string, namesAndArgs ...string) answer {
	a := answer{content: content}
	for i := 0; i < len(namesAndArgs); i += 2 {
		a.calls = append(a.calls, call{id: fmt.Sprint("id", i/2+1), name: namesAndArgs[i], args: namesAndArgs[i+1]})
	}
	return a
}

// broken marks the last call of an answer.
func broken(a answer) answer {
	a.calls[len(a.calls)-1].broken = true
	return a
}

// ids replaces the ids of calls.
func ids(a answer, list ...string) answer {
	for i := range list {
		a.calls[i].id = list[i]
	}
	return a
}
