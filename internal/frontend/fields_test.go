package frontend

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

func TestFieldsRead(t *testing.T) {
	order := []string{}
	note := func(name string, raw []byte) { order = append(order, name+"="+string(raw)) }
	fs := fields{}
	for _, name := range []string{"a", "b", "c"} {
		fs[name] = func(name string, raw json.RawMessage) *apiError { note(name, raw); return nil }
	}
	for _, tc := range []struct {
		name, body string
		want       string // fields that were read
		says       string // of the error
	}{
		{"in order of their names", `{"c":1, "a": {"x": [1]} ,"b":"y"}`, `a={"x": [1]} b="y" c=1`, ""},
		{"null is absent", `{"a":null,"b":false}`, `b=false`, ""},
		{"the last of two counts", `{"a":1,"a":2}`, `a=2`, ""},
		{"unknown", `{"b":1,"bb":2}`, `b=1`, "Unknown parameter: 'bb'."},
		{"an unknown null", `{"zz":null}`, ``, "Unknown parameter: 'zz'."},
		{"names are exact", `{"A":1}`, ``, "Unknown parameter: 'A'."},
		{"empty object", ` {} `, ``, ""},
		{"a number", `5`, ``, "must be a JSON object"},
		{"a string", `"x"`, ``, "must be a JSON object"},
		{"cut off", `{"a":1`, ``, "not valid JSON: unexpected end of JSON input (byte 6)"},
		{"a comma too many", `{"a":1,}`, ``, "byte 8"},
		{"too deep", strings.Repeat(`{"a":`, 20000), ``, "not valid JSON"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			order = nil
			err := fs.read([]byte(tc.body))
			if got := strings.Join(order, " "); got != tc.want {
				t.Errorf("read %s, want %s", got, tc.want)
			}
			switch {
			case tc.says == "" && err != nil:
				t.Errorf("error %v", err)
			case tc.says != "" && (err == nil || !strings.Contains(err.Message, tc.says)):
				t.Errorf("error %v, want ...%s...", err, tc.says)
			}
		})
	}
}

func TestFieldConstructors(t *testing.T) {
	var s string
	var b bool
	var f *float64
	var i *int64
	var list []string
	var ids []uint32
	for _, tc := range []struct {
		name  string
		field field
		raw   string
		want  any    // of the variable
		code  string // of the error, "" for none
	}{
		{"text", text(&s), `"a\nb"`, "a\nb", ""},
		{"text", text(&s), `1`, nil, "invalid_type"},
		{"flag", flag(&b), `true`, true, ""},
		{"flag", flag(&b), `"true"`, nil, "invalid_type"},
		{"number", number(&f, 0, 2), `2`, 2.0, ""},
		{"number", number(&f, 0, 2), `1.5e0`, 1.5, ""},
		{"number", number(&f, 0, 2), `2.0001`, nil, "invalid_value"},
		{"number", number(&f, 0, 2), `-0.1`, nil, "invalid_value"},
		{"number", number(&f, 0, 2), `"1"`, nil, "invalid_type"},
		{"number", number(&f, 0, 2), `1e400`, nil, "invalid_type"},
		{"integer", integer(&i, -1, 10), `-1`, int64(-1), ""},
		{"integer", integer(&i, -1, 10), `10`, int64(10), ""},
		{"integer", integer(&i, -1, 10), `11`, nil, "invalid_value"},
		{"integer", integer(&i, -1, 10), `1.0`, int64(1), ""},
		{"integer", integer(&i, -1, 10), `1e1`, int64(10), ""},
		{"integer", integer(&i, -1, 10), `-0.0`, int64(0), ""},
		{"integer", integer(&i, -1, 10), `1.5`, nil, "invalid_type"},
		{"integer", integer(&i, -1, 10), `11.0`, nil, "invalid_value"},
		{"integer", integer(&i, -1, 1<<62), `9007199254740992.0`, nil, "invalid_type"},
		{"integer", integer(&i, -1, 10), `1e999999999`, nil, "invalid_type"},
		{"integer", integer(&i, -1, 10), `"1"`, nil, "invalid_type"},
		{"integer", integer(&i, -1, 10), `99999999999999999999`, nil, "invalid_type"},
		{"stops", stops(&list, 2), `"a"`, []string{"a"}, ""},
		{"stops", stops(&list, 2), `["a","b"]`, []string{"a", "b"}, ""},
		{"stops", stops(&list, 2), `[]`, []string{}, ""},
		{"stops", stops(&list, 2), `["a","b","c"]`, nil, "invalid_value"},
		{"stops", stops(&list, 2), `""`, nil, "invalid_value"},
		{"stops", stops(&list, 2), `["a",null]`, nil, "invalid_type"},
		{"stops", stops(&list, 2), `{}`, nil, "invalid_type"},
		{"token ids", tokenIDs(&ids, 1000), `[0,4294967295]`, []uint32{0, 4294967295}, ""},
		{"token ids", tokenIDs(&ids, 1000), `[4294967296]`, nil, "invalid_type"},
		{"token ids", tokenIDs(&ids, 1000), `[null]`, nil, "invalid_type"},
		{"token ids", tokenIDs(&ids, 1000), `5`, nil, "invalid_type"},
		{"ignored", ignored, `{"any":"thing"}`, nil, ""},
		{"only", only("0"), `0.0`, nil, ""},
		{"only", only("0"), `-0`, nil, ""},
		{"only", only("0"), `0.1`, nil, "unsupported_parameter"},
		{"only", only("0"), `"0"`, nil, "unsupported_parameter"},
		{"only", only(`{"type":"text"}`), `{ "type" : "text" }`, nil, ""},
		{"only", only(`{"type":"text"}`), `{"type":"json_object"}`, nil, "unsupported_parameter"},
		{"only", only(), `1`, nil, "unsupported_parameter"},
	} {
		t.Run(tc.name+" "+tc.raw, func(t *testing.T) {
			s, b, f, i, list, ids = "", false, nil, nil, nil, nil
			err := tc.field("x", []byte(tc.raw))
			if code := ""; err != nil {
				if code = *err.Code; code != tc.code || *err.Param != "x" || !strings.Contains(err.Message, "'x'") {
					t.Errorf("param %s, code %s, %q; want %q", *err.Param, code, err.Message, tc.code)
				}
				return
			}
			if tc.code != "" {
				t.Fatalf("no error, want %s", tc.code)
			}
			var got any
			switch tc.name {
			case "text":
				got = s
			case "flag":
				got = b
			case "number":
				got = *f
			case "integer":
				got = *i
			case "stops":
				got = list
			case "token ids":
				got = ids
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestBudget(t *testing.T) {
	m := &servedModel{card: cluster.ModelCard{ContextLength: 100}}
	limit := func(n int64) *int64 { return &n }
	for _, tc := range []struct {
		name             string
		max              *int64
		prompt, fallback int
		want             int
		param            string // of the error
	}{
		{"no limit of a chat", nil, 40, 0, 60, ""},
		{"no limit of a completion", nil, 40, 16, 16, ""},
		{"little room", nil, 95, 16, 5, ""},
		{"a limit", limit(7), 40, 16, 7, ""},
		{"exactly the room", limit(60), 40, 0, 60, ""},
		{"more than the room", limit(61), 40, 0, 0, "max_tokens"},
		{"a huge limit", limit(1 << 40), 40, 0, 0, "max_tokens"},
		{"room for one", nil, 99, 0, 1, ""},
		{"a full prompt", nil, 100, 0, 0, "prompt"},
		{"an empty prompt", nil, 0, 0, 0, "prompt"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &params{maxTokens: tc.max, maxName: "max_tokens"}
			got, err := p.budget(m, tc.prompt, "prompt", tc.fallback)
			param := ""
			if err != nil {
				param = *err.Param
			}
			if got != tc.want || param != tc.param {
				t.Errorf("got %d, error of %q (%v), want %d, %q", got, param, err, tc.want, tc.param)
			}
		})
	}
}

func TestReadPrompt(t *testing.T) {
	for raw, want := range map[string]string{
		`"a"`: "[a] []", `["a","b"]`: "[a b] []", `[1,2]`: "[] [[1 2]]", `[[1],[2,3]]`: "[] [[1] [2 3]]", `[]`: "[] []", `[[]]`: "[] [[]]",
	} {
		texts, tokens, err := readPrompt([]byte(raw), 1000, 1000)
		if got := fmt.Sprint(texts, tokens); got != want || err != nil {
			t.Errorf("%s: %s, %v, want %s", raw, got, err, want)
		}
	}
	for _, raw := range []string{`1`, `{}`, `true`, `[1,"a"]`, `["a",[1]]`, `[1,[2]]`, `[[1],null]`, `[null]`, `[1.5]`, `[[["a"]]]`, `[{}]`} {
		if _, _, err := readPrompt([]byte(raw), 1000, 1000); err == nil || *err.Code != "invalid_type" {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
