package schema

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/grammar/pda"
	"github.com/dynctl/dynctl/internal/grammar/schema/schematest"
)

func compileAutomaton(text string, o Options) (*pda.Automaton, error) {
	rules, root, err := Compile([]byte(text), o)
	if err != nil {
		return nil, err
	}
	return pda.Compile(rules, root, nil, pda.DefaultLimits())
}

func matches(a *pda.Automaton, text string) bool {
	var s pda.Scratch
	items, ended := a.Start(&s)
	for i := range len(text) {
		items, ended, _ = a.Step(&s, nil, items, text[i])
	}
	return ended
}

// generate writes a random text: random bytes at first, then the nearest end.
func generate(t *testing.T, a *pda.Automaton, r *rand.Rand, free int) string {
	t.Helper()
	var s pda.Scratch
	items, ended := a.Start(&s)
	var out []byte
	for {
		if ended && (len(items) == 0 || len(out) > free || r.IntN(8) == 0) {
			return string(out)
		}
		type next struct {
			items []pda.Item
			ended bool
			b     byte
		}
		var all []next
		best, shortest := -1, 0
		for b := range 256 {
			it, end, ok := a.Step(&s, nil, items, byte(b))
			if !ok {
				t.Fatal("too many items")
			}
			if len(it) == 0 && !end {
				continue
			}
			all = append(all, next{it, end, byte(b)})
			if len(out) > free {
				n := 0
				if !end {
					n = a.Shortest(it)
				}
				if best < 0 || n < shortest {
					best, shortest = len(all)-1, n
				}
			}
		}
		if len(all) == 0 {
			t.Fatalf("dead end after %q", out)
		}
		n := all[r.IntN(len(all))]
		if best >= 0 {
			n = all[best]
		} else if n.b >= 0x80 && r.IntN(4) > 0 { // most bytes belong to long characters
			n = all[0]
		}
		items, ended = n.items, n.ended
		if out = append(out, n.b); len(out) > free+20_000 {
			t.Fatalf("no end after %q", out[:200])
		}
	}
}

func check(t *testing.T, schema string, rounds int) {
	t.Helper()
	v := schematest.Compile(t, schema)
	for _, o := range []Options{{}, {Compact: true}} {
		a, err := compileAutomaton(schema, o)
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		r := rand.New(rand.NewPCG(7, uint64(len(schema))))
		for i := range rounds {
			v.Validate(t, generate(t, a, r, i*4))
		}
	}
}

func TestGeneratedIsValid(t *testing.T) {
	for name, schema := range schematest.Realistic() {
		t.Run(name, func(t *testing.T) { check(t, schema, 14) })
	}
}

// TestWideObject has more properties than one rule holds.
func TestWideObject(t *testing.T) {
	var properties []string
	for i := range 150 {
		properties = append(properties, fmt.Sprintf(`"%d%s":{"type":"integer","maximum":%d}`, i, strings.Repeat("x", i%3), i))
	}
	for _, rest := range []string{``, `,"required":["70x","149xx"]`, `,"additionalProperties":{"type":"null"},"required":["3"]`} {
		schema := `{"type":"object","properties":{` + strings.Join(properties, ",") + `}` + rest + `}`
		check(t, schema, 12)
		a, err := compileAutomaton(schema, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]bool{
			`{"3":1,"70x":2,"149xx":3}`: true, `{"0":0,"3":3,"64x":1,"70x":2,"128xx":0,"149xx":3}`: true,
			`{}`: rest == "", `{"149xx":0}`: rest == "", `{"3":3,"63":-1}`: rest == "" || strings.Contains(rest, "null"),
			`{"3":3,"new":null,"z":null}`: strings.Contains(rest, "null"), `{"3":3,"3":3,"70x":0,"149xx":0}`: false, `{"70x":0,"3":0,"149xx":0}`: false,
			`{"3":3,,"70x":0,"149xx":0}`: false, `{"3":3,"70x":0,"149xx":0,}`: false, `{"3":3,"70x":0,"149xx":0`: false,
		} {
			if got := matches(a, text); got != want {
				t.Errorf("%q: %s: %v, want %v", rest, text, got, want)
			}
		}
	}
}

func TestAccepts(t *testing.T) {
	for _, tt := range []struct {
		schema  string
		yes, no []string
	}{
		{`true`, []string{`1`, `"x"`, `[1, 2]`, `{"a":[{}]}`, "{\n  \"a\": null\n}", `-1.5e10`, `"\ud83d\ude00\n"`},
			[]string{``, `01`, `[1,]`, `{"a"}`, `"`, `"\ud83d"`, `"` + "\n" + `"`, `nul`, ` 1`, `1 `, "[ \n1]"}},
		{`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"boolean"}},"required":["b"]}`,
			[]string{`{"a":1,"b":true}`, `{"b":false}`, "{\n\t\"a\": -12,\n\t\"b\": true\n}"},
			[]string{`{}`, `{"a":1}`, `{"b":true,"a":1}`, `{"b":true,"c":1}`, `{"b":1}`, `{"a":1,}`}},
		{`{"type":"object","properties":{"a":{}},"additionalProperties":{"type":"null"}}`,
			[]string{`{}`, `{"a":[1]}`, `{"b":null,"c":null}`, `{"a":1,"ab":null,"":null}`}, []string{`{"b":1}`, `{"b":null,"a":1}`, `{"a":null,"a":1}`}},
		{`{"type":"object","patternProperties":{"^x-[a-z]+$":{"type":"integer"}},"additionalProperties":false}`,
			[]string{`{}`, `{"x-a":1,"x-b":2}`}, []string{`{"y":1}`, `{"x-a":null}`}},
		{`{"type":"object","required":["z"]}`, []string{`{"z":1}`, `{"z":1,"y":[]}`}, []string{`{}`, `{"y":1}`}},
		{`{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3}`, []string{`[1,2]`, `[1, 2, 3]`}, []string{`[]`, `[1]`, `[1,2,3,4]`, `[1,"2"]`}},
		{`{"prefixItems":[{"type":"string"},{"type":"integer"}],"items":{"type":"null"},"minItems":1}`,
			[]string{`["a"]`, `["a",1]`, `["a",1,null,null]`}, []string{`[]`, `[1]`, `["a",null]`}},
		{`{"type":"array","maxItems":0}`, []string{`[]`}, []string{`[1]`}},
		{`{"type":"string","minLength":2,"maxLength":3}`, []string{`"ab"`, `"é€😀"`, `"\n\u00e9"`, `"\ud83d\ude00\\"`}, []string{`"a"`, `"abcd"`, `""`}},
		{`{"type":"string","pattern":"^[a-c\"]+$"}`, []string{`"abc"`, `"\"a"`}, []string{`""`, `"d"`}},
		{`{"type":"string","pattern":"^[a-z]+$","minLength":2,"maxLength":4}`, []string{`"ab"`, `"abcd"`}, []string{`"a"`, `"abcde"`, `"A"`}},
		{`{"type":"string","pattern":"b","maxLength":3}`, []string{`"b"`, `"abc"`, `"\"b\n"`}, []string{`"acc"`, `"abcd"`}},
		{`{"type":"string","pattern":"^a|b$","minLength":3}`, []string{`"abc"`, `"xxb"`, `"axxx"`}, []string{`"a"`, `"xxx"`, `"ab"`}},
		{`{"type":"string","pattern":"b"}`, []string{`"b"`, `"abc"`, `"\nb"`}, []string{`"a"`}},
		{`{"type":"integer","minimum":-5,"exclusiveMaximum":12}`, []string{"-5", "-1", "0", "9", "10", "11"}, []string{"-6", "12", "-0", "1.0", "100", "01"}},
		{`{"type":"integer","minimum":95}`, []string{"95", "99", "100", "123456"}, []string{"94", "9", "-100"}},
		{`{"type":"integer","maximum":-10}`, []string{"-10", "-99"}, []string{"-9", "0", "10"}},
		{`{"type":"integer","multipleOf":7,"minimum":0,"maximum":30}`, []string{"0", "7", "14", "21", "28"}, []string{"1", "35", "-7"}},
		{`{"type":"integer","multipleOf":2.5}`, []string{"0", "5", "-10", "1005"}, []string{"1", "2"}},
		{`{"type":"number","minimum":0,"maximum":1}`, []string{"0", "0.5", "1", "1.0", "1.000", "0.999"}, []string{"1.0001", "-0.1", "2", "1e0"}},
		{`{"type":"number","exclusiveMinimum":-1.25,"exclusiveMaximum":2.5}`, []string{"-1.24", "-1.2", "-1", "2.49999", "0.0", "2"}, []string{"-1.25", "-1.250", "2.5", "2.50", "3", "-2"}},
		{`{"type":"number","multipleOf":0.25}`, []string{"0", "1", "1.5", "0.25", "-3.75"}, []string{"0.1", "0.125"}},
		{`{"enum":["a",1,null,{"b":[1,2]}]}`, []string{`"a"`, "1", "null", `{"b":[1,2]}`}, []string{`"b"`, "2"}},
		{`{"type":"integer","enum":["a",1,2.5,7],"maximum":5}`, []string{"1"}, []string{"7", "2.5", `"a"`}},
		{`{"anyOf":[{"type":"null"},{"type":"integer"}]}`, []string{"null", "3"}, []string{`"a"`}},
		{`{"type":["string","null"],"maxLength":1}`, []string{"null", `""`, `"a"`}, []string{`"ab"`}},
		{`{"type":"object","properties":{"k":{}},"required":["k"],"anyOf":[{"properties":{"k":{"const":1}}},{"properties":{"k":{"const":2}}}]}`,
			[]string{`{"k":1}`, `{"k":2}`}, []string{`{"k":3}`, `{}`}},
		{`{"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"null"},"a":{"minimum":3}}}]}`,
			[]string{`{"a":3}`, `{"a":4,"b":null}`}, []string{`{"a":2}`, `{}`}},
		{`{"$defs":{"t":{"type":"object","properties":{"c":{"type":"array","items":{"$ref":"#/$defs/t"}}},"additionalProperties":false}},"$ref":"#/$defs/t"}`,
			[]string{`{}`, `{"c":[{},{"c":[]}]}`}, []string{`{"c":[1]}`}},
		// Older dialects.
		{`{"$schema":"http://json-schema.org/draft-07/schema#","type":"array","items":[{"type":"string"},{"type":"integer"}],"additionalItems":{"type":"null"},"minItems":1}`,
			[]string{`["a"]`, `["a",1]`, `["a",1,null,null]`}, []string{`[]`, `[1]`, `["a",null]`}},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"string"},{"type":"integer"}],"additionalItems":false,"minItems":2}`, []string{`["a",1]`}, []string{`["a"]`, `["a",1,1]`}},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","type":"integer","minimum":3,"exclusiveMinimum":true,"exclusiveMaximum":false,"maximum":5}`, []string{"4", "5"}, []string{"3", "6"}},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","type":"number","maximum":2,"exclusiveMaximum":true,"minimum":1}`, []string{"1", "1.9"}, []string{"2", "2.0"}},
		// An embedded resource has references of its own.
		{`{"$defs":{"x":{"type":"null"},"r/~":{"$id":"urn:r","type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"boolean"}}}},
			"type":"array","items":{"anyOf":[{"$ref":"#/$defs/r~1~0"},{"$ref":"#/$defs/x"}]}}`, []string{`[{"a":true}]`, `[null]`}, []string{`[{"a":null}]`, `[true]`}},
		{`{"type":"string","format":"date"}`, []string{`"2024-02-29"`, `"2023-12-31"`}, []string{`"2023-02-29"`, `"2023-13-01"`}},
	} {
		accepts(t, tt.schema, tt.yes, tt.no)
		check(t, tt.schema, 12)
	}
}

func accepts(t *testing.T, schema string, yes, no []string) {
	t.Helper()
	a, err := compileAutomaton(schema, Options{})
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	for _, text := range yes {
		if !matches(a, text) {
			t.Errorf("%s refuses %s", schema, text)
		}
	}
	for _, text := range no {
		if matches(a, text) {
			t.Errorf("%s accepts %s", schema, text)
		}
	}
}

// OpenAPI 3.0 is not a dialect that the validator knows.
func TestNullable(t *testing.T) {
	accepts(t, `{"nullable":true,"type":"string","maxLength":1}`, []string{"null", `"a"`}, []string{`"ab"`, "1"})
	accepts(t, `{"type":"object","properties":{"a":{"type":"integer","nullable":false}}}`, []string{`{"a":1}`}, []string{`{"a":null}`})
}
