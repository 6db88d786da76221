package schema

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/grammar/pda"
	"github.com/dynctl/dynctl/internal/grammar/schema/schematest"
)

func TestErrors(t *testing.T) {
	for _, tt := range []struct{ schema, path, reason string }{
		{`{"properties":{"age":{"type":"integer","minimum":5,"maximum":3}}}`, "#/properties/age", "minimum 5 is greater than maximum 3"},
		{`{"type":"number","exclusiveMinimum":1,"maximum":1.0}`, "#", "no number is left between exclusiveMinimum 1 and maximum 1.0"},
		{`{"type":"integer","minimum":2.1,"maximum":2.9}`, "#", "no number satisfies"},
		{`{"type":"integer","minimum":1,"maximum":5,"multipleOf":7}`, "#", "no number satisfies"},
		{`{"items":{"minLength":3,"maxLength":2}}`, "#/items", "minLength 3 is greater than maxLength 2"},
		{`{"minItems":3,"maxItems":2}`, "#", "minItems 3 is greater"},
		{`{"prefixItems":[{}],"items":false,"minItems":2}`, "#", "at most 1 items"},
		{`{"type":"object","required":["a"],"properties":{},"additionalProperties":false}`, "#", `"a" is required`},
		{`{"required":["a"],"properties":{"a":false}}`, "#/properties/a", "no value matches false"},
		{`false`, "#", "no value matches false"},
		{`{"enum":[]}`, "#/enum", "empty"},
		{`{"type":"string","enum":[1,null]}`, "#/enum", "no listed value"},
		{`{"type":[]}`, "#/type", "empty"},
		{`{"allOf":[{"type":"string"},{"type":"null"}]}`, "#/allOf/1", "no type fits"},
		{`{"allOf":[{"const":1},{"const":2}]}`, "#/allOf/1/const", "no value is in this list"},
		{`{"type":"null","anyOf":[{"type":"string"},{"minimum":3,"maximum":2}]}`, "#/anyOf", "no alternative can be satisfied"},

		{`{"$defs":{"a/b":{"not":{}}},"$ref":"#/$defs/a~1b"}`, "#/$defs/a~1b/not", "keyword not is not supported"},
		{`{"properties":{"a":{"patternProperties":{"x":{},"y":{}}}}}`, "#/properties/a/patternProperties", "single pattern"},
		{`{"patternProperties":{"x":{}},"properties":{"x":{}}}`, "#/patternProperties", "single pattern"},
		{`{"uniqueItems":true}`, "#/uniqueItems", "not supported"},
		{`{"minProperties":1}`, "#/minProperties", "not supported"},
		{`{"if":{}}`, "#/if", "not supported"},
		{`{"format":"phone"}`, "#/format", `format "phone" is not supported`},
		{`{"pattern":"(?=a)"}`, "#/pattern", "offset 0: lookahead is not supported"},
		{`{"pattern":"(ab|c){900}x*","maxLength":5000}`, "#/pattern", "more than 20000 states"},
		{`{"pattern":"a","format":"date"}`, "#/pattern", "pattern together with format"},
		{`{"oneOf":[{"type":"integer"},{"type":"number"}]}`, "#/oneOf", "use anyOf"},
		{`{"oneOf":[{"properties":{"a":{}}},{"type":"string"}]}`, "#/oneOf", "use anyOf"},
		{`{"allOf":[{"pattern":"a"},{"pattern":"b"}]}`, "#/allOf/1/pattern", "combined with another value, at #/allOf/0/pattern"},
		{`{"allOf":[{"properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}}}]}`, "#/allOf/0/additionalProperties", `property "b"`},
		{`{"enum":[{}],"properties":{}}`, "#/enum/0", "not supported"},
		{`{"multipleOf":123457}`, "#/multipleOf", "needs more than"},
		{`{"minimum":1e99}`, "#/minimum", "more than 64 digits"},
		{`{"minLength":2000000}`, "#/minLength", "counts end at"},

		{`{"type":"int"}`, "#/type", `"int" is not a type`},
		{`{"type":["string",1]}`, "#/type/1", "1 is not a type"},
		{`{"$ref":"other.json"}`, "#/$ref", "is not supported"},
		{`{"$ref":"#/$defs/none"}`, "#/$ref", "leads nowhere"},
		{`{"allOf":[{"$ref":"#"}],"type":"object"}`, "#/allOf/0/$ref", "refers to itself"},
		{`{"properties":[]}`, "#/properties", "must be an object"},
		{`{"required":"a"}`, "#/required", "must be an array"},
		{`{"required":[1]}`, "#/required/0", "must be a string"},
		{`{"minItems":-1}`, "#/minItems", "not negative"},
		{`{"minItems":1.5}`, "#/minItems", "not negative"},
		{`{"multipleOf":0}`, "#/multipleOf", "greater than 0"},
		{`{"maximum":"3"}`, "#/maximum", "must be a number"},
		{`{"items":[]}`, "#/items", "at least 1"},
		{`{"exclusiveMinimum":true}`, "#/exclusiveMinimum", "minimum"},
		{`{"nullable":1}`, "#/nullable", "must be a boolean"},
		{`{"anyOf":[]}`, "#/anyOf", "at least 1"},
		{`{"items":3}`, "#/items", "an object or a boolean, not a number"},
		{`{"a":1`, "#", "malformed JSON"},
		{`{} {}`, "#", "after the end"},
		{``, "#", "malformed JSON"},
		{`{"title":"a","title":"b"}`, "#/title", "duplicate"},
		{strings.Repeat(`{"items":`, 80) + "{}" + strings.Repeat("}", 80), "#" + strings.Repeat("/items", 65), "nested more than 64 deep"},
	} {
		_, _, err := Compile([]byte(tt.schema), Options{})
		var e *Error
		if !errors.As(err, &e) || e.Path != tt.path || !strings.Contains(e.Reason, tt.reason) {
			t.Errorf("%.90s: %v; want %s: %s", tt.schema, err, tt.path, tt.reason)
		}
	}
}

func TestLax(t *testing.T) {
	for _, schema := range []string{
		`{"type":"string","format":"phone","not":{"const":"x"}}`,
		`{"oneOf":[{"type":"integer"},{"type":"number"}]}`,
		`{"type":"object","patternProperties":{"^x":{}},"unevaluatedProperties":false}`,
		`{"type":"string","pattern":"^(?!a)b$"}`,
		`{"type":"string","pattern":"^a*$","format":"date"}`,
		`{"pattern":"(?!a)b","enum":["a","b"]}`,
	} {
		if _, _, err := Compile([]byte(schema), Options{}); err == nil {
			t.Errorf("%s: strict accepts it", schema)
		}
		if _, _, err := Compile([]byte(schema), Options{Lax: true}); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

// TestEndless schemas contain themselves in every value.
func TestEndless(t *testing.T) {
	for _, schema := range []string{
		`{"$ref":"#"}`,
		`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`,
		`{"anyOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"type":"array","minItems":1,"items":{"$ref":"#/$defs/a"}}}}`,
	} {
		if _, err := compileAutomaton(schema, Options{}); !errors.Is(err, pda.ErrImpossible) {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

// hostile are schemas made to cost much.
func hostile() map[string]string {
	var optional, enum, deep strings.Builder
	for i := range 1500 {
		if i > 0 {
			optional.WriteByte(',')
			enum.WriteByte(',')
		}
		optional.WriteString(`"` + strings.Repeat("x", i%13) + strconv.Itoa(i) + `":{}`)
		enum.WriteString(`"` + strings.Repeat("ab", i%40) + string(rune(0x4E00+i)) + `"`)
	}
	for range 20 {
		deep.WriteString(`{"type":"array","maxItems":1000000,"items":`)
	}
	group := `{"anyOf":[` + strings.TrimSuffix(strings.Repeat(`{"type":"object","properties":{"a":{}}},`, 30), ",") + `]}`
	return map[string]string{
		"optional properties": `{"properties":{` + optional.String() + `}}`,
		"enum":                `{"enum":[` + enum.String() + `]}`,
		"nested counts":       deep.String() + "{}" + strings.Repeat("}", 20),
		"product of groups":   `{"allOf":[` + strings.TrimSuffix(strings.Repeat(group+",", 20), ",") + `]}`,
		"growing conjunction": `{"$defs":{"a":{"properties":{"x":{"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]}}},"b":{"properties":{"x":{"allOf":[{"$ref":"#/$defs/b"},{"$ref":"#/$defs/a"},{"$ref":"#/$defs/c"}]}}},"c":{"properties":{"x":{"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/c"}]}}}},"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]}`,
		"recursive group":     `{"$defs":{"a":{"required":["x"],"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"}`,
		"long unions":         `{"oneOf":[` + union(180) + `]}`,
		"enums":               `{"allOf":[{"enum":[` + numbers(9000) + `]},{"enum":[` + numbers(9000) + `]}]}`,
		"conjunctions":        `{"allOf":[` + strings.TrimSuffix(strings.Repeat(`{"properties":{"a":{"minimum":1},"b":{},"c":{}}},`, 2000), ",") + `]}`,
		"required":            `{"required":[` + strings.TrimSuffix(strings.Repeat(`"a",`, 40_000), ",") + `]}`,
		"pattern":             `{"pattern":"(a|b)*a(a|b){300}(\\pL{50}|\\pN{90}){9}"}`,
		"patterns":            `{"pattern":"((((x{0,9}){0,9}){0,9})y*){0,9}$"}`,
		"multiples":           `{"type":"number","multipleOf":0.00019997,"minimum":-1e60,"maximum":1e60}`,
		"long digits":         `{"type":"number","minimum":-` + strings.Repeat("7", 60) + `.` + strings.Repeat("3", 60) + `}`,
	}
}

func union(n int) string {
	var alts []string
	for i := range n {
		alts = append(alts, `{"type":"object","properties":{"kind":{"const":`+strconv.Itoa(i)+`}},"required":["kind"]}`)
	}
	return strings.Join(alts, ",")
}

func numbers(n int) string {
	var all []string
	for i := range n {
		all = append(all, strconv.Itoa(i*7919))
	}
	return strings.Join(all, ",")
}

// TestHostile bounds the cost: the limits are far above what was measured, they only
// tell bounded from unbounded.
func TestHostile(t *testing.T) {
	for name, schema := range hostile() {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			a, err := compileAutomaton(schema, Options{})
			if err == nil {
				t.Logf("%d states, %d bytes", a.States(), a.Bytes())
			}
			t.Logf("%v, error %.200v", time.Since(start), err)
			if err == nil && a.Bytes() > 64<<20 {
				t.Errorf("%d bytes", a.Bytes())
			}
		})
	}
}

func FuzzCompile(f *testing.F) {
	for _, schema := range schematest.Realistic() {
		f.Add(schema)
	}
	for _, schema := range hostile() {
		if len(schema) < 500 {
			f.Add(schema)
		}
	}
	f.Fuzz(func(t *testing.T, schema string) {
		if len(schema) > 2000 {
			return
		}
		a, err := compileAutomaton(schema, Options{Lax: true})
		if err != nil {
			return
		}
		var s pda.Scratch
		items, ended := a.Start(&s)
		for i := 0; i < 40 && len(items) > 0; i++ {
			found := false
			for b := range 256 {
				out, end, ok := a.Step(&s, nil, items, byte((b*7+i)%256))
				if !ok {
					return
				}
				if len(out) > 0 || end {
					items, ended, found = out, end, true
					break
				}
			}
			if !found {
				t.Fatalf("dead end, ended = %v", ended)
			}
		}
	})
}
