package jinja_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/jinja"
)

var update = flag.Bool("update", false, "ask Python's jinja2 for the expected texts in testdata/snippets.json")

const snippetFile = "testdata/snippets.json"

// TestSnippets renders hand-written corner cases and compares with what Python's
// jinja2 made of them when the file was last updated.
func TestSnippets(t *testing.T) {
	const now = "2026-01-05T09:08:07.000123"
	at, err := time.ParseInLocation("2006-01-02T15:04:05", now, time.Local)
	if err != nil {
		t.Fatal(err)
	}
	type golden struct {
		Source string `json:"source"`
		oracleAnswer
	}
	data := json.RawMessage(`{"l":[3,1,2],"d":{"b":1,"a":[true,null,"x"],"items":"key"},"s":"hello world","n":7,"f":2.5,"z":null,
		"users":[{"name":"Bo","age":3,"tags":["x"]},{"name":"al","age":1},{"name":"Cy","age":3}],"tree":[{"v":1,"kids":[{"v":2,"kids":[]},{"v":3,"kids":[{"v":4}]}]},{"v":5}],
		"huge":9007199254740993,"html":"<a href='x'>&</a>"}`)
	if *update {
		var cases []oracleCase
		for _, s := range snippets {
			cases = append(cases, oracleCase{Source: s, Data: data, Now: now})
		}
		var out []golden
		for i, a := range askOracle(t, cases) {
			out = append(out, golden{snippets[i], a})
		}
		var raw bytes.Buffer
		enc := json.NewEncoder(&raw)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", " ")
		if err := enc.Encode(out); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(snippetFile, raw.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(snippetFile)
	if err != nil {
		t.Fatal(err)
	}
	var cases []golden
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != len(snippets) {
		t.Errorf("%s holds %d snippets, want %d: run with -update", snippetFile, len(cases), len(snippets))
	}
	for _, c := range cases {
		v, err := jinja.FromJSON(data)
		if err != nil {
			t.Fatal(err)
		}
		got, err := render(t, "snippet", c.Source, v.(*jinja.Dict), at)
		switch kind, _ := errorKind(err); {
		case c.Text == nil && err == nil:
			t.Errorf("%s\ngot  %q\nwant %s", c.Source, got, describe(c.oracleAnswer))
		case c.Text == nil && !sameKind(kind, c.Kind):
			t.Errorf("%s\nerror %v\nwant  %s", c.Source, err, describe(c.oracleAnswer))
		case c.Text != nil && (err != nil || got != *c.Text):
			t.Errorf("%s\ngot  %q, error %v\nwant %q", c.Source, got, err, *c.Text)
		}
	}
}

var snippets = []string{
	// Variables and scopes.
	"{% for i in l %}{{ s }}{% endfor %}{% set s = 1 %}{{ s }}",
	"{% if n > 100 %}{% set s = 1 %}{% endif %}{{ s }}",
	"{% if n %}{% set q = 1 %}{% else %}{% set q = 2 %}{% endif %}{{ q }}",
	"{% if z %}{% set q = 1 %}{% elif n %}{% set q = 2 %}{% else %}{% set q = 3 %}{% endif %}{{ q }}",
	"{% set x = 0 %}{% for i in l %}{% set x = x + i %}{{ x }},{% endfor %}{{ x }}",
	"{% for i in l %}{{ x }}{% set x = i %}{% endfor %}{{ x is defined }}",
	"{% set x = 'out' %}{% for i in l %}{% if loop.first %}{% set x = 'in' %}{% endif %}{{ x }} {% endfor %}{{ x }}",
	"{% macro m() %}{{ x }}{% endmacro %}{% set x = 5 %}{{ m() }}",
	"{% macro m() %}{% set n = 1 %}{{ n }}{% endmacro %}{{ m() }}{{ n }}",
	"{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
	"{{ m() }}{% macro m() %}x{% endmacro %}",
	"{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
	"{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}",
	"{% with (a, b) = (1, 2) %}{{ a }}{{ b }}{% endwith %}",
	"{% set a, b = 1, 2 %}{{ a }}{{ b }}",
	"{% set (a, (b, c)) = (1, (2, 3)) %}{{ a }}{{ b }}{{ c }}",
	"{% set a, b = l %}",
	"{% set a, b = 5 %}",
	"{% set ns = namespace(d, c=3) %}{{ ns.b }}{{ ns.c }}{{ ns['c'] }}{{ ns.q is defined }}{{ ns }}",
	"{% set ns = namespace() %}{% for i in l if i > (ns.m or 0) %}{% set ns.m = i %}{{ i }}{% endfor %}{{ ns.m }}",
	"{% set n.x = 1 %}",
	"{% set q.x = 1 %}",
	"{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns }}",
	"{% set true = 1 %}",
	"{% set x | upper | trim %} a{{ n }} {% endset %}[{{ x }}]",
	"{% set x %}{% for i in l %}{{ i }}{% endfor %}{% endset %}{{ x|length }}",
	"{% set loop = 1 %}{{ loop }}",
	"{% for i in l %}{% set loop = 1 %}{% endfor %}",
	"{% for loop in l %}{% endfor %}",
	// Loops.
	"{% for x in tree recursive %}{{ loop.depth }}:{{ x.v }}{% if x.kids %}({{ loop(x.kids) }}){% endif %}{% if not loop.last %},{% endif %}{% endfor %}",
	"{% for x in tree recursive %}{{ x.v }}{{ loop(x.kids) if x.kids is defined }}{% else %}-{% endfor %}",
	"{% for x in l %}{{ loop(l) }}{% endfor %}",
	"{% for x in [] %}a{% else %}b{% endfor %}",
	"{% for x in l %}{% continue %}{% else %}all skipped{% endfor %}",
	"{% for x in l %}{% break %}{% else %}all skipped{% endfor %}",
	"{% for x in l %}{{ x }}{% break %}{% else %}no{% endfor %}",
	"{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }};{% endfor %}{% endfor %}",
	"{% for x in l if x != 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ loop.nextitem }} {% endfor %}",
	"{% for x in l|map('string') %}{{ loop.last }}{{ loop.revindex }}{{ loop.length }} {% endfor %}",
	"{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
	"{% for x in [1,1,2] %}{{ loop.changed(x) }}{{ loop.changed(x, 1) }} {% endfor %}",
	"{% for x in l %}{{ loop.cycle() }}{% endfor %}",
	"{% for x in l %}{{ loop.foo }}{% endfor %}",
	"{% for x in l %}{{ loop.foo.bar }}{% endfor %}",
	"{% for a, b in [(1,2),(3,4)] %}{{ a }}{{ b }}{% endfor %}",
	"{% for a, b in [(1,2,3)] %}{% endfor %}",
	"{% for a, b in ['x'] %}{% endfor %}",
	"{% for k in d %}{{ k }}{% endfor %}{% for c in 'añ😀' %}{{ c }}.{% endfor %}",
	"{% for x in missing %}a{% else %}b{% endfor %}{% for x in z %}{% endfor %}",
	"{% break %}",
	"{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
	"{% for x in range(3) %}{% set y %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endset %}{{ y }}{% endfor %}",
	"{% for x in l %}{% filter upper %}a{% if loop.last %}{% break %}{% endif %}b{% endfilter %}{% endfor %}",
	"{% set j = joiner('|') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}",
	// Macros.
	"{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}{{ m(b=3) }}",
	"{% macro m(a=b, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m() }}|{{ m(b=3) }}",
	"{% macro m(a) %}{{ a }}{{ a is defined }}{% endmacro %}{{ m() }}",
	"{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m() }}",
	"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 'a', k=2) }}{{ m() }}",
	"{% macro m() %}{% endmacro %}{{ m(1) }}",
	"{% macro m() %}{% endmacro %}{{ m(a=1) }}",
	"{% macro m(a, a) %}{% endmacro %}",
	"{% macro m(a=1, b) %}{% endmacro %}",
	"{% macro m(a, caller) %}{{ caller() }}{% endmacro %}",
	"{% macro m(caller=none) %}{{ caller is none }}{% endmacro %}{{ m() }}{% call m() %}x{% endcall %}",
	"{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
	"{% macro m() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(a, b=5, c=6) m() %}{{ a }}{{ b }}{{ c }}{{ n }}{% endcall %}",
	"{% macro o() %}{{ caller() }}{% endmacro %}{% macro i() %}{% call o() %}<{{ caller() }}>{% endcall %}{% endmacro %}{% call i() %}x{% endcall %}",
	"{% call n %}{% endcall %}",
	"{% call range(3) %}{% endcall %}",
	"{% macro f(k) %}{{ k }}{% if k %}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
	"{% macro m(x) %}{% for i in range(x) %}{{ loop.index }}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(i) m(2) %}({{ i }}{{ loop is defined }}){% endcall %}",
	"{% macro m(*a) %}{% endmacro %}",
	"{{ range(*[1, 5], **{}) }}{{ dict(**{'a': 1}) }}",
	"{{ dict(a=1, a=2) }}",
	"{{ dict(**{1: 2}) }}",
	"{{ dict(*5) }}",
	// Numbers.
	"{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ 7.5 % -2 }} {{ 1e300 * 1e10 }}",
	"{{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ (-8) ** 3 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 0 ** 0 }} {{ 10 ** 18 }} {{ (-3) ** 39 }} {{ 1 ** 4000000000 }} {{ (-1) ** 7 }}",
	"{{ 0 ** -1 }}",
	"{{ 1 // 0 }}",
	"{{ 1.5 % 0 }}",
	"{{ 1 / 3 }} {{ 4 / 2 }} {{ huge / 3 }} {{ huge + 0.0 }} {{ huge * 1000 }} {{ huge == 9007199254740992.0 }} {{ huge > 9007199254740992.0 }}",
	"{{ 1e16 }} {{ 1e15 }} {{ 123456789012345678.0 }} {{ 1e-4 }} {{ 1e-5 }} {{ 1.0 }} {{ -0.0 }} {{ 0.1 + 0.2 }} {{ 1e22 }} {{ 5e-324 }}",
	"{{ 1_000 }} {{ 1_0.5_0 }} {{ 00 }} {{ 1e3 }} {{ 1E-2 }}",
	"{{ 012 }}",
	"{{ true + true }} {{ true * 3 }} {{ -true }} {{ true == 1 }} {{ 1 == 1.0 }} {{ '1' == 1 }} {{ none == false }}",
	"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 3 > 2 >= 2 }} {{ 1 == 1 != 2 }} {{ 1 in l in [l] }}",
	"{{ 1 < 'a' }}",
	"{{ [1, 2] < [1, 3] }} {{ (1, 2) == (1, 2) }} {{ [1] == (1,) }} {{ [] < [1] }} {{ {'a': 1} == {'a': 1.0} }} {{ 'a' < 'b' }} {{ range(3) == range(0, 3) }}",
	"{{ l + 'a' }}",
	"{{ 'a' + 1 }}",
	"{{ 1 + 'a' }}",
	"{{ l * 2 }} {{ 2 * 'ab' }} {{ 'ab' * -1 }} {{ (1,) * 2 }} {{ l * 'a' }}",
	"{{ 'a' * 1.5 }}",
	"{{ -'a' }}",
	"{{ not z }} {{ not not l }} {{ z or 'x' }} {{ l and 5 }} {{ '' or 0 or none }} {{ 0 and missing.foo }}",
	"{{ n is odd }} {{ n is divisibleby 7 }} {{ n is even }} {{ 2.0 is even }} {{ f is odd }}",
	"{{ 7|round }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 2.1|round(0, 'ceil') }} {{ 2.9|round(method='floor') }} {{ -2.5|round }}",
	"{{ '42'|int }} {{ ' 42 '|int }} {{ '4.9'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ '0x1f'|int }} {{ '007'|int }} {{ '-7'|int }} {{ '123456789012345678901234567890'|int }} {{ none|int }} {{ [1]|int(default=3) }} {{ true|int }} {{ -2.7|int }} {{ '1e3'|int }}",
	"{{ (s[:0] ~ 'inf')|float|int }}",
	"{{ missing|int }}",
	"{{ '2.5'|float }} {{ 'inf'|float }} {{ 'nan'|float }} {{ 'x'|float }} {{ 3|float }} {{ none|float(1.5) }} {{ '0x10'|float }}",
	"{{ -3|abs }} {{ -2.5|abs }} {{ (-3)|abs }} {{ true|abs }}",
	"{{ [1, 2.5]|sum }} {{ []|sum }} {{ users|sum(attribute='age') }} {{ [[1], [2]]|sum(start=[]) }}",
	"{{ ['a']|sum }}",
	// Strings.
	"{{ 'it\\'s' }} {{ \"q\\\"\" }} {{ '\\u00e9\\x41\\101\\n\\\\' }} {{ '\\z' }} {{ 'a\\\nb' }}",
	"{{ ['it\\'s', 'a\"b', 'both\\'\"', '\\t\\x00\\x7f', 'é', '\\u200b', '\\ue000', '\\U0001f600'] }}",
	"{{ 'x' 'y' \"z\" }} {{ ('a' 'b')|length }}",
	"{{ 'abc'[0] }}{{ 'abc'[-1] }}{{ 'abc'[5] }}{{ 'añ😀b'[2] }}{{ 'añ😀b'[1:3] }}{{ 'añ😀b'[::-1] }}",
	"{{ l[1:2] }}{{ l[::2] }}{{ l[-1:0:-1] }}{{ l[10:] }}{{ l[:-10] }}{{ l[none:2] }}{{ (1,2,3)[1:] }}{{ range(10)[2:8:2] }}{{ range(10)[::-3]|list }}{{ range(5)[1] }}",
	"{{ l[::0] }}",
	"{{ l['a':] }}",
	"{{ d[1:] }}",
	"{{ n[0] }}|{{ n[1:] }}",
	"{{ d['items'] }} {{ d.items()|list|length }} {{ d['missing'] }} {{ d['keys'] is defined }} {{ d.get('zz') }} {{ d.get('b', 2) }} {{ d.b }} {{ d[['x']] is defined }}",
	"{{ d.keys() }} {{ d.values() }} {{ d.items() }} {{ d.keys()|list }} {{ 'b' in d.keys() }} {{ 1 in d.values() }} {{ d.items()[0] is defined }}",
	"{{ d.update({'a': 1}) }}",
	"{{ l.append(1) }}",
	"{{ l.sort }}{{ d.setdefault }}|{{ l.append is defined }}",
	"{{ l.__class__ }}|{{ ''.__class__.__mro__ }}",
	"{{ ''.__class__.mro }}",
	"{{ l.index(2) }} {{ l.count(1) }} {{ (1, 2).index(2) }} {{ 'abc'.index('c') }} {{ 'abcabc'.rindex('c') }} {{ 'abcabc'.rfind('z') }}",
	"{{ l.index(9) }}",
	"{{ 'abc'.index('z') }}",
	"{{ 'a-b-c'.split('-', 1) }} {{ 'a-b-c'.rsplit('-', maxsplit=1) }} {{ ' a  b '.split() }} {{ ' a  b c '.split(none, 1) }} {{ ' a  b c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split('x') }}",
	"{{ 'a'.split('') }}",
	"{{ 'a\\nb\\r\\nc\\x0bd\\x1ce\\u2028f'.splitlines() }} {{ 'a\\nb'.splitlines(true) }} {{ ''.splitlines() }} {{ 'a\\n\\n'.splitlines() }}",
	"{{ 'aXbX'.replace('X', '-') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'ab'.replace('', '.') }} {{ ''.replace('', 'x') }}",
	"{{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith('c', 1) }} {{ 'abc'.startswith('b', 1, 2) }} {{ 'abc'.startswith('') }} {{ 'abc'.startswith('', 4) }}",
	"{{ 'abc'.startswith(1) }}",
	"{{ 'ß ŉ ǆ ﬁ'.upper() }} {{ 'ΑΣ'.lower() }} {{ 'İ'.lower()|length }} {{ 'ß'.title() }} {{ 'ß'.capitalize() }} {{ \"they're bill's\".title() }} {{ 'ǆ'.title() }}",
	"{{ \"they're bill's x-y (z\"|title }} {{ 'hELLO wORLD'|capitalize }} {{ 'fOO bar'|title }} {{ ''|capitalize }}",
	"{{ '-5'.zfill(4) }} {{ '+x'.zfill(5) }}",
	"{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('z') }} {{ 'abc'.rpartition('z') }}",
	"{{ 'TestHook'.removeprefix('Test') }} {{ 'a.py'.removesuffix('.py') }} {{ 'abc'.removeprefix('z') }}",
	"{{ '12'.isdigit() }}{{ '²'.isdigit() }}{{ '½'.isdigit() }}{{ '½'.isnumeric() }}{{ ''.isdigit() }}{{ 'aé'.isalpha() }}{{ 'a1'.isalnum() }}{{ ' \\t'.isspace() }}{{ 'A1'.isupper() }}{{ '1'.isupper() }}{{ 'aB'.islower() }}",
	"{{ ','.join(['a', 'b']) }} {{ ','.join('abc') }} {{ ','.join(d) }}",
	"{{ ','.join([1]) }}",
	"{{ '{} {}'.format(1, 'a') }} {{ '{1}{0}'.format(1, 2) }} {{ '{a}{b}'.format(a=1, b=[5]) }} {{ '{{}}'.format() }} {{ '{!r:>6}'.format('x') }}",
	"{{ '{} {1}'.format(1, 2) }}",
	"{{ '{}'.format() }}",
	"{{ '{'.format(1) }}",
	"{{ '{:d}'.format(3) }} {{ '{:s}'.format('x') }} {{ '{}'.format(none) }} {{ '{:>5}|{:^5}|{:<5}|{:05}|{:+}|{: }'.format(1, 2, 3, 4, 5, 6) }}",
	"{{ '{:.2f} {:10.3f} {:%} {:,} {:,.2f} {:08.2f} {:,}'.format(1.005, 2.5, 0.25, 1234567, 12345.678, -2.5, 1234.5) }}",
	"{{ '{:x} {:X} {:04x} {:<05}|{:^6}|{:*>4}'.format(255, 255, 255, 5, 8, 65) }} {{ '{:05}'.format('ab') }} {{ '{:5}'.format(true) }} {{ '{:.3s}|{:5}|{:>5}'.format('abcdef', 'ab', 'cd') }} {{ '{:.0f}'.format(2.5) }}",
	"{{ '{:d}'.format('x') }}",
	"{{ '{:d}'.format(1.5) }}",
	"{{ '%s %r %d %i' % ('a', 'a', 3.7, true) }} {{ '%5.1f|%-8s|%08.3f|%+d|% d' % (2.25, 'ab', 3.14159, 5, 5) }} {{ '%x %X %04x' % (255, 255, -255) }} {{ '100%%' % () }} {{ '%(a)s-%(b)05d' % {'a': 1, 'b': 2} }}",
	"{{ '%s' % (1, 2) }}",
	"{{ '%s %s' % 'a' }}",
	"{{ '%d' % 'a' }}",
	"{{ '%z' % 1 }}",
	"{{ 'a' % d }} {{ '%s' % l }} {{ '%s' % missing }} {{ '%s'|format('x') }} {{ '%(k)s'|format(k=3) }}",
	"{{ 'hello'|replace('l', 'L', 1) }} {{ 123|replace(2, 'x') }} {{ none|upper }} {{ missing|lower }}| {{ 5|string ~ 5 }} {{ 'x' ~ none ~ 1.0 ~ l }}",
	"{{ '  a '|trim }}| {{ 'xxaxx'|trim('x') }} {{ 5|trim }} {{ none|trim }}",
	"{{ 'a\\nb\\n\\nc'|indent }}|{{ 'a\\nb'|indent(2, true) }}|{{ 'a\\n\\nb'|indent('> ', blank=true) }}|{{ ''|indent(2, true) }}",
	"{{ 5|indent }}",
	// Lists, dictionaries and their filters.
	"{{ users|map(attribute='name')|join(',') }} {{ users|map(attribute='tags.0', default='-')|list }} {{ users|map(attribute='zz')|list }} {{ l|map('float')|list }} {{ ['a', 'b']|map('replace', 'a', 'x')|list }}",
	"{{ l|map('nope')|list }}",
	"{{ l|map()|list }}",
	"{{ l|nope }}",
	"{% if z %}{{ l|nope }}{% endif %}ok",
	"{% if n %}{{ l|nope }}{% endif %}",
	"{{ l is nope }}",
	"{{ users|selectattr('tags')|map(attribute='name')|list }} {{ users|selectattr('age', 'gt', 1)|list|length }} {{ users|rejectattr('age', '==', 3)|map(attribute='name')|first }} {{ [1, none, 'a']|reject('none')|list }} {{ []|select('nope')|list }}",
	"{{ [1]|select('nope')|list }}",
	"{{ users|sort(attribute='age,name')|map(attribute='name')|list }} {{ users|sort(attribute='name', case_sensitive=true)|map(attribute='name')|list }} {{ users|sort(true, attribute='age')|map(attribute='name')|list }} {{ ['b', 'A', 'a', 'B']|sort }} {{ 'cab'|sort }}",
	"{{ [1, 'a']|sort }}",
	"{{ ['a', 'A', 'b']|unique|list }} {{ ['a', 'A']|unique(true)|list }} {{ users|unique(attribute='age')|map(attribute='name')|list }} {{ [1, 1.0, true]|unique|list }}",
	"{{ [[1]]|unique|list }}",
	"{{ ['b', 'A', 'c']|min }} {{ ['b', 'A', 'c']|max }} {{ []|min }} {{ users|max(attribute='age') }} {{ 'hello'|max }} {{ ['B', 'a']|min(case_sensitive=true) }}",
	"{{ l|first }} {{ l|last }} {{ []|first }} {{ ''|last }} {{ d|first }} {{ d|last }} {{ d.items()|last }} {{ 'abc'|last }} {{ range(3)|last }}",
	"{{ l|map('string')|last }}",
	"{{ 5|first }}",
	"{{ []|first.foo }}",
	"{{ l|reverse|list }} {{ 'añb'|reverse }} {{ (1, 2)|reverse|list }} {{ d|reverse|list }} {{ l|map('string')|reverse }} {{ range(3)|reverse|list }}",
	"{{ 5|reverse }}",
	"{{ d|dictsort }} {{ {'B': 1, 'a': 2}|dictsort }} {{ {'B': 1, 'a': 2}|dictsort(true) }} {{ {'x': 2, 'y': 1}|dictsort(by='value') }} {{ {'x': 2, 'y': 1}|dictsort(false, 'value', true) }}",
	"{{ d|dictsort(by='foo') }}",
	"{{ d|items|list }} {{ missing|items|list }}",
	"{{ l|items|list }}",
	"{{ l|join }} {{ l|join('-') }} {{ users|join(', ', attribute='name') }} {{ 'abc'|join('.') }} {{ d|join }} {{ [none, true, 1.0, missing]|join(',') }}",
	"{{ 5|join }}",
	"{{ s|length }} {{ l|count }} {{ d|length }} {{ missing|length }} {{ range(5)|length }} {{ d.items()|length }}",
	"{{ 5|length }}",
	"{{ l|map('string')|length }}",
	"{% set g = l|map('string') %}{{ g|join }}{{ g|join }}|{{ 1 if g else 2 }}",
	"{{ missing|default }}|{{ missing|default('x') }} {{ z|default('x') }} {{ z|default('x', true) }} {{ ''|default('x', boolean=true) }} {{ missing.foo|default('x') }}",
	"{{ missing|d(n) }} {{ 0|d(5, true) }}",
	"{{ 'x' in 'xyz' }} {{ 1 in l }} {{ 'b' in d }} {{ 1 not in l }} {{ 3 in range(5) }} {{ 'x' in missing }} {{ '1' in ['1'] }} {{ none in [none] }} {{ 1.0 in l }}",
	"{{ 1 in 'abc' }}",
	"{{ 1 in 5 }}",
	"{{ [] in {} }}",
	"{{ {[]: 1} }}",
	"{{ {1: 'a', 1.0: 'b', true: 'c'} }} {{ {(1, 2): 3}[(1, 2)] }} {{ {none: 1, 'x': {}} }} {{ {} }} {{ () }} {{ (1,) }} {{ [()] }}",
	"{{ dict(a=1)|tojson }} {{ dict([('a', 1)], b=2) }} {{ dict(d, b=9) }} {{ dict() }} {{ dict({'x': 1}).x }}",
	"{{ dict([1]) }}",
	"{{ range(3) }} {{ range(1, 3) }} {{ range(5, 0, -2) }} {{ range(3)|list }} {{ range(0) }}",
	"{{ range(100001) }}",
	"{{ range(1, 2, 0) }}",
	"{{ range('a') }}",
	// JSON.
	"{{ {'a': [1, 2.0, none, true, 'é<>&\\'\"'], 'b': {}, 'c': []}|tojson }}",
	"{{ {'a': [1, {'b': []}], 'c': {}}|tojson(indent=2) }}",
	"{{ [1, [2]]|tojson(indent='\\t') }} {{ [1]|tojson(indent=0) }} {{ [1]|tojson(indent=2, separators=(';', '=')) }}",
	"{{ {'b': 1, 'a': 2, 'é': '😀\\u2028'}|tojson(ensure_ascii=true, sort_keys=true, separators=(',', ':')) }}",
	"{{ {1: 'a', none: 'b', true: 'c', 1.5: 'd'}|tojson }} {{ (1, 2)|tojson }} {{ 'x\\n\\t\\b\\f\\r\\x01\\x7f/\\\\'|tojson }} {{ 1e20|tojson }} {{ 'inf'|float|tojson }} {{ huge|tojson }} {{ '123456789012345678901234567890'|int|tojson }}",
	"{{ missing|tojson }}",
	"{{ [missing]|tojson }}",
	"{{ range(3)|tojson }}",
	"{{ d.keys()|tojson }}",
	"{{ {(1, 2): 3}|tojson }}",
	"{{ {1: 2, 'a': 3}|tojson(sort_keys=true) }}",
	"{{ '<b>'|e|tojson }} {{ '<b>'|safe|tojson }}",
	// Safe text.
	"{{ html|e }} {{ html|escape }} {{ html|safe }} {{ '<' ~ html|e }} {{ html|e ~ '<' }} {{ (html|e)|upper }} {{ (html|tojson|safe) }}",
	"{{ '<{}>'.format('<') }} {{ ('ab'|safe)[0] }} {{ ('ab'|safe) is string }} {{ 'x'|safe == 'x' }} {{ ('<'|safe) * 2 }} {{ 5|e }}",
	// Tests.
	"{{ z is none }}{{ missing is defined }}{{ l is iterable }}{{ 5 is iterable }}{{ s is sequence }}{{ d is sequence }}{{ d is mapping }}{{ l is mapping }}{{ d.items() is sequence }}{{ missing is sequence }}{{ missing is iterable }}{{ missing is callable }}{{ range is callable }}{{ l is callable }}{{ 1 is number }}{{ true is number }}{{ true is integer }}{{ 1 is integer }}{{ 1.0 is float }}",
	"{{ 1 is sameas 1 }}{{ true is sameas true }}{{ 1 is sameas true }}{{ l is sameas l }}{{ l is sameas [3, 1, 2] }}{{ none is sameas none }}{{ 'a' is lower }}{{ 'A' is upper }}{{ 1 is in l }}{{ 1 is not in l }}{{ 3 is eq 3 }}{{ 3 is ne(4) }}{{ 3 is ge 3 }}{{ 2 is le(1) }}{{ n is gt 3 }}{{ n is lessthan 3 }}",
	"{{ l is not none and n is defined }} {{ 'a' if z is not none else 'b' }} {{ n is divisibleby(3) or n is odd }} {{ 1 is true }}{{ true is true }}{{ false is false }}",
	"{{ n is defined is true }}",
	"{{ 'upper' is filter }}{{ 'odd' is test }}{{ 'nope' is filter }}",
	// Conditional expressions.
	"{{ 'a' if n else 'b' }} {{ 'a' if z }} {{ 1 if z else 2 if n else 3 }} {{ ('a' if z) is defined }} {{ [1 if z] }}",
	"{{ ('a' if z).x }}",
	"{{ missing }}|{{ missing.x is defined }}",
	"{{ missing + 1 }}",
	"{{ 'a' + missing }}",
	"{{ missing ~ 'x' }} {{ [missing] }} {{ missing == missing2 }} {{ missing == none }} {{ not missing }}",
	"{{ missing < 1 }}",
	"{{ missing() }}",
	"{{ n() }}",
	"{{ z.foo }}|{{ z['x'] }}",
	"{{ z.foo.bar }}",
	"{{ d.x.y }}",
	"{{ l[9].x }}",
	"{{ missing['x'] }}",
	// Text and white space.
	"a\n{% if n %}\nb\n{% endif %}\nc\n",
	"a\n  {% if n %}  \n  b\n  {%- endif -%}  \n c\n\n",
	"  {%+ if n %} x{% endif +%}\n y",
	"a {#- c -#} b {# d #}\n e\n  {# f #}\ng",
	"  {{ n }}\n{{- n -}} \n {{ n }}",
	"{% raw %}\n{{ x }}\n{% endraw %}\nz",
	"a {%- raw -%} {{ x }} {%- endraw -%} b",
	"  {% raw %} x  {% endraw %}\n y",
	"a\r\nb\rc{{ '\r\n'|length }}\r\n",
	"{% if n -%}\n\n  x {%- endif %}",
	"\n\n{{ n }}\n\n",
	"{{ '}}' }}{{ {'a': {'b': 1}}['a'] }}{{ '{%' }}",
	"{% filter upper|replace('A', 'x') %}abc{{ n }}{% endfilter %}",
	"{% filter nope %}x{% endfilter %}",
	"{% generation %}a{% set q = 1 %}{% endgeneration %}{{ q is defined }}",
	"{% if n: %}x{% endif %}",
	// Time.
	"{{ strftime_now('%Y-%m-%d %H:%M:%S %j %a %A %b %B %d %-d %e %y %p %I %-I %l %u %w %f %% %Z|%z|%D %T %R %F %c %x %X') }}",
	"{{ strftime_now() }}",
	"{{ raise_exception('no ' ~ n) }}",
	"{{ raise_exception() }}",
	// Syntax errors.
	"{% if n %}",
	"{% if n %}{% endfor %}",
	"{% endif %}",
	"{% nope %}",
	"{% for x l %}{% endfor %}",
	"{{ 1 2 }}",
	"{{ (1 }}",
	"{{ 1) }}",
	"{{ [1) }}",
	"{{ $ }}",
	"{{ 'abc }}",
	"{{ }}",
	"{% %}",
	"{{ a. }}",
	"{{ a.1 }}{{ l.0 }}{{ l.1.real }}",
	"{{ a| }}",
	"{{ a|1 }}",
	"{# open",
	"{% raw %} open",
	"{{ open",
	"{% set 1 = 2 %}",
	"{% set a.b.c = 2 %}",
	"{% for 1 in l %}{% endfor %}",
	"{{ f(a=1, 2) }}",
	"{{ f(**a, *b) }}",
	"{{ {1 2} }}",
	"{{ {'a': 1,} }}{{ [1,] }}{{ (1,) }}{{ l[0,] is defined }}",
	"{{ , }}",
	"{{ 'a' is }}",
	"{{ not }}",
	"{{ x if }}",
	"{% macro 1() %}{% endmacro %}",
	"{% call %}{% endcall %}",
	"{{ l[1:2, 3] }}",
	"{{ '\\x4' }}",
	"{{ é }}{{ _x1 }}",
}
