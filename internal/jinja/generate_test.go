package jinja_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// generator makes random conversations and random templates. The templates are
// typed loosely: most of them render, some must fail.
type generator struct {
	rng   *rand.Rand
	depth int
	vars  []string // names set so far
}

func (g *generator) pick(options ...string) string { return options[g.rng.IntN(len(options))] }
func (g *generator) chance(percent int) bool       { return g.rng.IntN(100) < percent }

var texts = []string{
	"", " ", "a", "Hello", "hello world", "  spaced out \n", "two\nlines\r\nthree", "it's", `say "hi"`, "<b>&amp;</b>",
	"naïve 日本 😀", "ÄÖÜ straße", "Ǆ ǆ İ ı ſ", "x=1, y=2", "a.b.c", "a,b,,c", "tab\tnew", "<think>\nstep\n</think>\n\nanswer",
	"UPPER", "Title Case words", "42", "-7", "3.14", "1e3", "0x1f", "%s and %d", "{} {0}", "line1\nline2\n\nline4\n",
	"\u00a0nbsp\u2003", "\u001cfs\u0085nel", "don't STOP-me now", "(paren) [brack]", "²½", "ΑΣ ΟΔΟΣ", "e\u0301",
}

func (g *generator) text() string { return texts[g.rng.IntN(len(texts))] }

func quote(s string) string {
	b, _ := json.Marshal(s) // JSON escapes are template escapes too
	return string(b)
}

// data makes variables for snippets.
func (g *generator) data() json.RawMessage {
	var msgs []any
	for range g.rng.IntN(4) {
		msgs = append(msgs, map[string]any{"role": g.pick("user", "assistant", "system"), "content": g.text()})
	}
	raw, _ := json.Marshal(map[string]any{
		"messages": msgs, "n": g.rng.IntN(12) - 3, "f": []float64{0, 2.5, -1.25, 1e21, 0.1, 3, 1e-7}[g.rng.IntN(7)],
		"s": g.text(), "e": "", "l": []any{3, 1, 2, 1}, "w": []any{"b", "A", "c", "a"}, "z": nil, "t": true,
		"mix": []any{1, "1", 1.0, true, nil, []any{}, map[string]any{"k": 1}},
		"big": json.Number("123456789012345678901234567890"),
	})
	// Dictionaries with an order that is not the sorted one.
	return json.RawMessage(strings.TrimSuffix(string(raw), "}") +
		`,"d":{"b":1,"a":[true,null,"x"],"items":"key","c":{"k":"v"}},"nested":[{"g":"p","v":1},{"g":"q","v":2},{"g":"P","v":3}]}`)
}

func (g *generator) int() string {
	if g.depth++; g.depth > 5 {
		g.depth--
		return g.pick("1", "2", "n")
	}
	defer func() { g.depth-- }()
	switch g.rng.IntN(14) {
	case 0:
		return g.int() + g.pick(" + ", " - ", " * ", "//", " % ") + g.int()
	case 1:
		return "(" + g.int() + ")"
	case 2:
		return g.str() + "|length"
	case 3:
		return g.list() + "|count"
	case 4:
		return "-" + g.int()
	case 5:
		return g.str() + "|int"
	case 6:
		return g.pick("l|sum", "l|max", "l|min", "l[0]", "nested[1].v", "s.find('l')", "s.count('o')", "n|abs", "messages|length", "2**3", "-2**2", "f|int", "7.9|int")
	}
	return g.pick("0", "1", "2", "3", "-1", "5", "n", "10", "1_000")
}

func (g *generator) float() string {
	return g.pick("f", "2.5", "0.1", "1e3", "1.0", "-0.0", "n/2", "3|float", "f|round", "f|round(1)", "2.675|round(2, 'ceil')", "1e16", "1e-5",
		"1/3", "7.0//2", "-7.5 % 2", "2**0.5", "2**-1", "f*3", "s|float(1.5)")
}

func (g *generator) str() string {
	if g.depth++; g.depth > 5 {
		g.depth--
		return g.pick("s", `"x"`, "e")
	}
	defer func() { g.depth-- }()
	switch g.rng.IntN(16) {
	case 0:
		return g.str() + " ~ " + g.any()
	case 1:
		return "(" + g.str() + " + " + g.str() + ")"
	case 2, 3, 4:
		return g.str() + g.strMethod()
	case 5, 6, 7:
		return g.str() + "|" + g.strFilter()
	case 8:
		return g.str() + "[" + g.slice() + "]"
	case 9:
		return g.list() + "|join(" + g.pick("", "', '", "d=' '", "'', attribute='role'") + ")"
	case 10:
		return g.any() + "|" + g.pick("string", "tojson", "tojson(indent=2)", "tojson(sort_keys=true)", "tojson(ensure_ascii=true)", "tojson(separators=(',',':'))")
	case 11:
		return g.pick(`"%s-%s" % (n, s)`, `"%05d|%-5d|%+d" % (n, n, n)`, `"%5.2f %8.3f" % (f, f)`, `"%x %X %r" % (255, 171, s)`, `"%(a)s" % {"a": s}`,
			`"{} {}".format(s, n)`, `"{0:>8}|{0:<8}|{0:^8}".format("ab")`, `"{:,} {:+d} {:06.2f}".format(1234567, n, f)`, `"{a} {b!r}".format(a=1, b=s)`,
			`"{:.3f} {:%} {:.1%}".format(f, f, f)`, `"%s"|format(s)`, `"{:x} {:X} {:02d}".format(255, 171, 5)`, `"%.3s|%10s|%-10s|" % (s, "r", "l")`, `"{:8.3f} {:,}".format(12.0, f)`)
	case 12:
		return "messages[0]" + g.pick(".role", "['content']", ".content", ".missing")
	}
	if g.chance(50) {
		return quote(g.text())
	}
	return g.pick("s", "s", "e", `'lit'`, `"a" "b"`, `'\x41\u00e9\n\q'`)
}

func (g *generator) strMethod() string {
	m := g.pick("upper", "lower", "title", "capitalize", "strip", "lstrip", "rstrip", "strip1", "split", "split1", "split2", "rsplit", "splitlines",
		"replace", "replace1", "startswith", "endswith", "find", "count", "join", "zfill", "partition", "rpartition",
		"removeprefix", "removesuffix", "isdigit", "isalpha", "isalnum", "isspace", "isupper", "islower", "index", "isnumeric")
	arg := g.pick(`"l"`, `" "`, `"a"`, `"o w"`, `"\n"`, `"</think>"`, `"."`, `","`, `"x"`)
	switch m {
	case "strip1":
		return ".strip(" + g.pick(`"\n "`, `"ha"`, `"<b>"`, "none") + ")"
	case "split", "rsplit", "splitlines":
		return "." + m + "()" + g.pick("", "", "[0]", "|join('_')", "|list")
	case "split1":
		return "." + g.pick("split", "rsplit") + "(" + arg + ")" + g.pick("", "[0]", "[-1]", "|last")
	case "split2":
		return "." + g.pick("split", "rsplit") + "(" + g.pick(arg, "none") + ", " + g.pick("0", "1", "2", "-1") + ")"
	case "replace":
		return ".replace(" + arg + ", " + g.pick(`""`, `"__"`, arg) + ")"
	case "replace1":
		return `.replace("", "-", ` + g.pick("0", "1", "2", "-1") + ")"
	case "startswith", "endswith":
		return "." + m + "(" + g.pick(arg, `("h", "H")`, arg+", 1", arg+", -3, 100", "1") + ")"
	case "find", "count", "index":
		return "." + m + "(" + g.pick(arg, arg+", 2", arg+", -4, -1", `""`) + ")"
	case "join":
		return ".join(" + g.pick("w", "['a', 'b']", "l", "s", "d") + ")"
	case "zfill":
		return ".zfill(" + g.pick("0", "5", "9") + ")"
	case "partition", "rpartition", "removeprefix", "removesuffix":
		return "." + m + "(" + arg + ")"
	}
	return "." + m + "()"
}

func (g *generator) strFilter() string {
	return g.pick("upper", "lower", "title", "capitalize", "trim", "trim('lo ')", "replace('l', 'L')", "replace('o', '0', 1)", "reverse", "length", "first", "last",
		"indent", "indent(2, true)", "indent('>', blank=true)", "escape", "safe",
		"list", "string", "default('def')", "default('def', true)", "int", "float", "list|sort|join", "unique|join", "e ~ '<'", "tojson")
}

func (g *generator) slice() string {
	part := func() string { return g.pick("", "", "0", "1", "2", "-1", "-2", "n", "9", "-9", "none") }
	if g.chance(40) {
		return part() + ":" + part() + ":" + g.pick("1", "2", "-1", "-2", "")
	}
	return part() + ":" + part()
}

func (g *generator) list() string {
	if g.depth++; g.depth > 5 {
		g.depth--
		return g.pick("l", "w", "[]")
	}
	defer func() { g.depth-- }()
	switch g.rng.IntN(12) {
	case 0:
		return "[" + g.any() + ", " + g.any() + "]"
	case 1:
		return "(" + g.list() + " + " + g.list() + ")"
	case 2, 3:
		return g.list() + "[" + g.slice() + "]"
	case 4, 5, 6:
		return g.list() + "|" + g.listFilter()
	case 7:
		return "range(" + g.pick("3", "1, 4", "5, 0, -2", "0", "n") + ")" + g.pick("", "|list")
	case 8:
		return "(" + g.any() + ",)"
	}
	return g.pick("l", "w", "mix", "nested", "messages", "[]", "[1, 2, 3,]", "(1, 'a')", "d.items()|list", "d.keys()|list", "d|list")
}

func (g *generator) listFilter() string {
	return g.pick("list", "sort", "sort(reverse=true)", "sort|list", "reverse|list", "unique|list", "map('string')|list", "map('upper')|list", "select|list", "reject('none')|list",
		"select('string')|list", "select('number')|list", "map(attribute='role')|list", "map(attribute='g', default='?')|list", "selectattr('role', 'equalto', 'user')|list",
		"rejectattr('v', 'gt', 1)|list", "selectattr('content')|list", "sort(attribute='v')", "sort(case_sensitive=true)",
		"unique(case_sensitive=true)|list", "select('odd')|list", "select('in', [1, 2, 'a'])|list", "map('tojson')|list", "map('default', 'x')|list", "map('length')|list",
		"map(attribute=0)|list", "select('defined')|list", "select('eq', 1)|list", "sort(attribute='g,v')", "max(attribute='v')", "min(attribute='g')", "sum(attribute='v')", "sum(start=10)")
}

func (g *generator) dict() string {
	return g.pick("d", "d.c", "messages[0]", "{}", `{"k": 1, 'j': [1]}`, "dict(a=1, b=s)", "{1: 'one', 1.0: 'uno', none: 2}", "dict([('x', 1)])", "nested[0]", "dict(d, b=5)")
}

func (g *generator) bool() string {
	if g.depth++; g.depth > 5 {
		g.depth--
		return "t"
	}
	defer func() { g.depth-- }()
	switch g.rng.IntN(8) {
	case 0:
		return g.any() + g.pick(" == ", " != ") + g.any()
	case 1:
		return g.int() + g.pick(" < ", " <= ", " > ", " >= ") + g.pick(g.int(), g.float()) + g.pick("", "", " < 5")
	case 2:
		return g.any() + g.pick(" in ", " not in ") + g.pick(g.list(), g.dict())
	case 3:
		return g.str() + g.pick(" in ", " not in ", " < ") + g.str()
	case 4:
		return "not " + g.bool()
	case 5:
		return g.bool() + g.pick(" and ", " or ") + g.any()
	}
	return g.any() + " is " + g.pick("", "", "not ") + g.pick("defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping", "iterable",
		"sequence", "callable", "odd", "even", "divisibleby(3)", "divisibleby 2", "eq 1", "ne('a')", "in [1, 'a']", "sameas(true)", "lower", "upper", "gt(0)", "lessthan(3)")
}

func (g *generator) any() string {
	if g.depth++; g.depth > 6 {
		g.depth--
		return g.pick("n", "s", "l")
	}
	defer func() { g.depth-- }()
	switch g.rng.IntN(14) {
	case 0, 1, 2:
		return g.str()
	case 3, 12:
		return g.int()
	case 4:
		return g.float()
	case 5, 6:
		return g.list()
	case 7:
		return g.dict() + g.pick("", ".b", "['a']", ".missing", ".get('a')", ".get('zz', 4)", ".items()", ".keys()", ".values()|list", "|length", "|dictsort", "|dictsort(by='value')", "|items|list", "['items']", "|first", "|list", "|tojson", "|string")
	case 8:
		return "(" + g.bool() + ")"
	case 9:
		return "(" + g.any() + " if " + g.bool() + g.pick(" else "+g.any(), "") + ")"
	case 10:
		if g.chance(80) {
			break
		}
		return g.pick("z", "t", "true", "none", "missing", "mix", "big", "missing.attr", "z.attr", "messages[9]", "l[10]", "n.foo", "d.update", "l.append", "l.__class__", "namespace(a=1)")
	case 11:
		return "missing|default(" + g.any() + ")"
	}
	if len(g.vars) > 0 {
		return g.vars[g.rng.IntN(len(g.vars))]
	}
	return "n"
}

// template makes a small template of statements and expressions.
func (g *generator) template() string {
	g.vars = nil
	// Most templates test one expression: every part that may fail makes the
	// rest useless.
	if g.chance(60) {
		g.depth = 3
		defer func() { g.depth = 0 }()
		return "{{ " + g.any() + " }}"
	}
	var b strings.Builder
	for range 1 + g.rng.IntN(3) {
		b.WriteString(g.statement(3))
		b.WriteString(g.gap())
	}
	return b.String()
}

// damage deletes, repeats or swaps a piece of a template, to see the same syntax
// refused and accepted.
func (g *generator) damage(s string) string {
	chars := []rune(s)
	if len(chars) == 0 {
		return s
	}
	i := g.rng.IntN(len(chars))
	j := min(i+1+g.rng.IntN(4), len(chars))
	piece := string(chars[i:j])
	switch g.rng.IntN(4) {
	case 0:
		piece = ""
	case 1:
		piece += piece
	case 2:
		piece += g.pick("(", ")", "[", "]", "{", "}", ".", ",", "|", "%}", "{%", "'", " if ", " not ", "=", "**", ":", "-", "\\", "~", " in ", " is ", "_")
	default:
		piece = g.pick(" ", "", "0", "x", "\n")
	}
	return string(chars[:i]) + piece + string(chars[j:])
}

func (g *generator) gap() string {
	return g.pick("", "", " ", "\n", "\n\n", "  \n  ", "text", " t \n", "\t", "{# c #}", "{#- c -#}\n", "\r\n")
}

func (g *generator) tag(s string) string {
	return "{%" + g.pick("", "", "-", "+") + " " + s + " " + g.pick("", "", "-", "+") + "%}"
}

func (g *generator) block(depth int) string {
	var b strings.Builder
	b.WriteString(g.gap())
	for range 1 + g.rng.IntN(2) {
		b.WriteString(g.statement(depth - 1))
		b.WriteString(g.gap())
	}
	return b.String()
}

func (g *generator) print() string {
	return "{{" + g.pick(" ", "- ") + g.any() + g.pick(" ", " -") + "}}"
}

func (g *generator) statement(depth int) string {
	saved := g.depth
	g.depth = 3 + g.rng.IntN(2)
	defer func() { g.depth = saved }()
	if depth == 0 {
		return g.print()
	}
	name := g.pick("x", "y", "s", "ns", "m")
	switch g.rng.IntN(16) {
	case 0, 1:
		out := g.tag("if "+g.bool()) + g.block(depth)
		if g.chance(30) {
			out += g.tag("elif "+g.bool()) + g.block(depth)
		}
		if g.chance(50) {
			out += g.tag("else") + g.block(depth)
		}
		return out + g.tag("endif")
	case 2, 3, 4:
		return g.loop(depth)
	case 5, 6:
		out := g.tag("set " + name + " = " + g.any())
		g.vars = append(g.vars, name)
		return out
	case 7:
		out := g.tag("set "+name+g.pick("", " | upper", "|trim")) + g.block(depth) + g.tag("endset")
		g.vars = append(g.vars, name)
		return out
	case 8:
		return g.tag("set ns = namespace(k="+g.any()+")") + g.tag("set ns.k = "+g.any()) + "{{ ns.k }}"
	case 9, 10:
		args := g.pick("(a, b=2)", "(a)", "(a, b='x', c=a)", "()")
		body := g.pick("{{ a }}-{{ b }}", "{{ varargs }}{{ kwargs }}", "{{ caller() if caller }}", g.block(depth), "{{ a }}{{ m is callable }}")
		call := g.pick("1", "1, 2", "a=3", "b=1, a=2", "", "1, 2, 3, z=4", "*[1, 2]", "**{'a': 5}")
		return g.tag("macro m"+args) + body + g.tag("endmacro") + "{{ m(" + call + ") }}"
	case 11:
		return g.tag("macro w(t)") + "<{{ caller(" + g.pick("", "1", "t") + ") }}>" + g.tag("endmacro") +
			g.tag("call"+g.pick("", "(q)", "(q=3)")+" w("+g.any()+")") + g.block(depth) + "{{ q }}" + g.tag("endcall")
	case 12:
		return g.tag("filter "+g.pick("upper", "trim", "indent(2)", "replace('a', 'A')|title")) + g.block(depth) + g.tag("endfilter")
	case 13:
		return g.tag("with "+g.pick("x = "+g.any()+", y = x", "q = 1", "")) + g.block(depth) + "{{ x }}{{ q }}" + g.tag("endwith")
	case 14:
		return g.tag("raw") + g.pick(" {{ x }} ", "\n{% if %}\n", "") + g.tag("endraw") + g.tag("generation") + g.block(depth) + g.tag("endgeneration")
	}
	return g.print()
}

func (g *generator) loop(depth int) string {
	head := g.pick("for x in "+g.list(), "for x in "+g.any(), "for k, v in d.items()", "for x, y in d|dictsort", "for (i, x) in [(1, 2), (3, 4)]", "for x in l if x > 1",
		"for x in nested recursive", "for x in messages[::-1]", "for ch in s", "for x in l if loop is undefined", "for x in w|map('upper')")
	extra := g.pick("", "", "{{ loop.index }}", "{{ loop.index0 }}/{{ loop.length }}", "{{ ',' if not loop.last }}", "{{ loop.first }}{{ loop.revindex }}{{ loop.revindex0 }}",
		"{{ loop.cycle('a', 'b') }}", "{{ loop.changed(x) }}", "{{ loop.previtem }}|{{ loop.nextitem }}", "{{ loop.depth }}", g.tag("set s = x")+"{{ s }}",
		g.tag("if loop.index == 2")+g.tag(g.pick("break", "continue"))+g.tag("endif"), "{{ x }}", "{{ loop([]) }}", "{{ k }}={{ v }}")
	g.vars = append(g.vars, "x")
	out := g.tag(head) + extra + g.block(depth)
	if g.chance(25) {
		out += g.tag("else") + g.block(depth)
	}
	return out + g.tag("endfor")
}

// conversation makes the variables of a chat template.
func (g *generator) conversation() json.RawMessage {
	var msgs []string
	if g.chance(50) {
		msgs = append(msgs, `{"role":"system","content":`+quote(g.text())+`}`)
	}
	for i := range 1 + g.rng.IntN(6) {
		role := "user"
		if i%2 == 1 {
			role = "assistant"
		}
		if g.chance(8) {
			role = g.pick("tool", "system", "user", "assistant", "developer")
		}
		m := `{"role":"` + role + `","content":`
		switch {
		case role == "user" && g.chance(15):
			m += `[{"type":"text","text":` + quote(g.text()) + `},{"type":"` + g.pick("image", "text", "audio") + `","text":"t"}]`
		case role == "assistant" && g.chance(20):
			m += "null"
		default:
			m += quote(g.text())
		}
		if role == "assistant" && g.chance(30) {
			m += fmt.Sprintf(`,"tool_calls":[{"id":"call_%d","type":"function","function":{"name":"get_%s","arguments":{"city":%s,"n":%d,"x":1.0}}}]`,
				i, g.pick("weather", "time"), quote(g.text()), g.rng.IntN(9))
		}
		if role == "assistant" && g.chance(20) {
			m += `,"reasoning_content":` + quote(g.text())
		}
		msgs = append(msgs, m+"}")
	}
	tools := "null"
	if g.chance(40) {
		tools = `[{"type":"function","function":{"name":"get_weather","description":"Größe & <x>","parameters":{"type":"object","properties":{"city":{"type":"string","description":"d"},"unit":{"type":["string","null"],"enum":["c","f"]}},"required":["city"]}}}]`
	}
	out := `{"messages":[` + strings.Join(msgs, ",") + `],"tools":` + tools + `,"bos_token":"<s>","eos_token":"</s>","add_generation_prompt":` + g.pick("true", "false")
	if g.chance(30) {
		out += `,"enable_thinking":` + g.pick("true", "false")
	}
	if g.chance(30) {
		out += `,"date_string":"26 Jul 2024"`
	}
	return json.RawMessage(out + "}")
}
