package jinja_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/jinja"
)

// smallLimits keep tests of limits short.
var smallLimits = jinja.Limits{Output: 1 << 16, Alloc: 1 << 20, Steps: 200_000, Depth: 50}

func TestLimits(t *testing.T) {
	tests := []struct{ name, source string }{
		{"output in a loop", `{% for i in range(100000) %}{{ "0123456789" }}{% endfor %}`},
		{"nested loops", `{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}`},
		{"string times number", `{{ "x" * 10**9 }}`},
		{"string times huge number", `{{ "xxx" * 10**18 }}`},
		{"empty list times huge number is fine, a full one not", `{{ ([] * 10**18)|length }}{{ [1] * 10**18 }}`},
		{"doubling string", `{% set ns = namespace(s="ab") %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}`},
		{"doubling list", `{% set ns = namespace(s=[1]) %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}`},
		{"doubling by replace", `{% set ns = namespace(s="ab") %}{% for i in range(64) %}{% set ns.s = ns.s|replace("", ns.s) %}{% endfor %}`},
		{"doubling by join", `{% set ns = namespace(s="abcd") %}{% for i in range(64) %}{% set ns.s = ns.s.join(ns.s) %}{% endfor %}`},
		{"shared structure printed", `{% set ns = namespace(s=[1]) %}{% for i in range(64) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}`},
		{"shared structure as json", `{% set ns = namespace(s=[1]) %}{% for i in range(64) %}{% set ns.s = {"a": ns.s, "b": ns.s} %}{% endfor %}{{ ns.s|tojson }}`},
		{"shared structure compared", `{% set a = namespace(s=[1], t=[1]) %}{% for i in range(64) %}{% set a.s = [a.s, a.s] %}{% set a.t = [a.t, a.t] %}{% endfor %}{{ a.s == a.t }}`},
		{"shared structure hashed", `{% set ns = namespace(s=(1,)) %}{% for i in range(64) %}{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ {ns.s: 1} }}`},
		{"deep structure", `{% set ns = namespace(s=[]) %}{% for i in range(20000) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}`},
		{"huge integer", `{{ 9**(9**9) }}`},
		{"growing integer", `{% set ns = namespace(i=3) %}{% for i in range(100) %}{% set ns.i = ns.i * ns.i %}{% endfor %}`},
		{"macro recursion", `{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}`},
		{"mutual recursion", `{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}`},
		{"caller recursion", `{% macro m() %}{{ caller() }}{% call m() %}x{% endcall %}{% endmacro %}{% call m() %}y{% endcall %}`},
		{"loop recursion", `{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}`},
		{"endless namespace cycle as json", `{% set ns = namespace() %}{% set ns.a = dict(a=ns) %}{% for i in range(99999) %}{% set x = ns.a|string %}{% endfor %}`},
		{"zfill", `{{ "x".zfill(10**18) }}`},
		{"indent", `{{ "x\ny"|indent(10**9) }}`},
		{"indent many lines", `{{ ("x\n" * 1000)|indent("y" * 5000) }}`},
		{"percent width", `{{ "%99999999999d" % 1 }}`},
		{"percent precision", `{{ "%.99999999f" % 1 }}`},
		{"format width", `{{ "{:99999999999}".format(1) }}`},
		{"json indent", `{{ [1]|tojson(indent=10**9) }}`},
		{"repeated work without output", `{% set s = "ab" * 400000 %}{% for i in range(100000) %}{{ "zz" in s and "x" }}{% endfor %}`},
		{"generators of generators", `{% set ns = namespace(g=range(1000)) %}{% for i in range(3000) %}{% set ns.g = ns.g|map("string") %}{% endfor %}{{ ns.g|list|length }}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tmpl, err := jinja.Parse("t", tt.source)
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			out, err := tmpl.Render(t.Context(), nil, jinja.Options{Limits: smallLimits})
			if !errors.Is(err, jinja.ErrLimit) {
				t.Errorf("got %d bytes and error %v, want a limit error", len(out), err)
			}
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

func TestParseLimits(t *testing.T) {
	n := 40_000
	tests := []struct{ name, source string }{
		{"brackets", "{{ " + strings.Repeat("(", n) + "1" + strings.Repeat(")", n) + " }}"},
		{"lists", "{{ " + strings.Repeat("[", n) + strings.Repeat("]", n) + " }}"},
		{"not", "{{ " + strings.Repeat("not ", n) + "1 }}"},
		{"minus", "{{ " + strings.Repeat("-", n) + "1 }}"},
		{"sum", "{{ 1" + strings.Repeat("+1", n) + " }}"},
		{"attributes", "{{ a" + strings.Repeat(".a", n) + " }}"},
		{"filters", "{{ a" + strings.Repeat("|e", n) + " }}"},
		{"conditions", "{{ a" + strings.Repeat(" if a", n) + " }}"},
		{"else conditions", "{{ a" + strings.Repeat(" if a else a", n) + " }}"},
		{"tags", strings.Repeat("{% if a %}", n)},
		{"macros", strings.Repeat("{% macro a() %}", n)},
		{"calls", "{{ " + strings.Repeat("a(", n) + " }}"},
		{"source", strings.Repeat(" ", jinja.MaxSource+1)},
		{"huge number", "{{ 1" + strings.Repeat("0", n) + " }}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := jinja.Parse("t", tt.source)
			var syntax *jinja.SyntaxError
			if !errors.As(err, &syntax) && !errors.Is(err, jinja.ErrLimit) {
				t.Errorf("got error %v, want a syntax or limit error", err)
			}
		})
	}
	// Length alone is no harm.
	for name, source := range map[string]string{
		"ifs":     strings.Repeat("{% if a1 %}{% set b1 = 1 %}{% endif %}", n/2),
		"elifs":   "{% if a %}" + strings.Repeat("{% elif a %}", n) + "{% endif %}",
		"concat":  "{{ a" + strings.Repeat(" ~ a", n) + " }}",
		"list":    "{{ [" + strings.Repeat("1,", n) + "]|length }}",
		"outputs": strings.Repeat("{{ a }}", n),
		"strings": "{{ " + strings.Repeat("'a' ", n) + " }}",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			tmpl, err := jinja.Parse("t", source)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tmpl.Render(t.Context(), nil, jinja.Options{}); err != nil {
				t.Error(err)
			}
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

func TestContextEndsRendering(t *testing.T) {
	tmpl, err := jinja.Parse("t", `{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}`)
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("client left")
	ctx, cancel := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
	defer timer.Stop()
	_, err = tmpl.Render(ctx, nil, jinja.Options{Limits: jinja.Limits{Steps: 1 << 60}})
	if !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
	if _, err := tmpl.Render(ctx, nil, jinja.Options{}); !errors.Is(err, cause) {
		t.Errorf("rendering under an ended context: got %v, want %v", err, cause)
	}
}

func TestConcurrentRendering(t *testing.T) {
	tmpl, err := jinja.Parse("t", `{% macro m(x) %}{{ x }}{{ caller(x) }}{% endmacro %}{% set ns = namespace(n=0) %}`+
		`{% for x in l recursive %}{% set ns.n = ns.n + x %}{% call(y) m(x) %}{{ y }}{{ loop.index }}{% endcall %}{% endfor %}{{ ns.n }}{{ d|tojson }}{{ l|sort|list }}`)
	if err != nil {
		t.Fatal(err)
	}
	data := vars(t, []byte(`{"l":[3,1,2],"d":{"b":1,"a":[{}]}}`))
	want, err := tmpl.Render(t.Context(), data, jinja.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if got, err := tmpl.Render(t.Context(), data, jinja.Options{}); err != nil || got != want {
					t.Errorf("got %q, %v, want %q", got, err, want)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzRender(f *testing.F) {
	for _, s := range snippets {
		f.Add(s)
	}
	f.Add(`{% for m in messages %}{{ m.role }}: {{ m['content'] | trim }}{% endfor %}`)
	data, err := jinja.FromJSON([]byte(`{"messages":[{"role":"user","content":"hi"}],"l":[3,1,2],"d":{"b":1,"a":[true,null,"x"]},"s":"hello é","n":7,"f":2.5,"z":null,"t":true}`))
	if err != nil {
		f.Fatal(err)
	}
	lim := jinja.Limits{Output: 1 << 14, Alloc: 1 << 18, Steps: 20_000, Depth: 20}
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := jinja.Parse("fuzz", source)
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		out, err := tmpl.Render(ctx, data.(*jinja.Dict), jinja.Options{Limits: lim})
		if len(out) > lim.Output {
			t.Errorf("%d bytes of output", len(out))
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("limits did not end the rendering")
		}
		if out2, err2 := tmpl.Render(ctx, data.(*jinja.Dict), jinja.Options{Limits: lim}); (err == nil) != (err2 == nil) || out != out2 && !strings.Contains(source, "strftime") {
			t.Errorf("second rendering differs: %q, %v; first %q, %v", out2, err2, out, err)
		}
	})
}

func FuzzFromJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,1.0,-0,1e5,"x\ud800",null,true,{}]}`, `[`, `{"a":1,"a":2}`, `123456789012345678901234567890`, `1e999`, ` 1 2`} {
		f.Add([]byte(s))
	}
	tmpl, err := jinja.Parse("json", `{{ v|tojson }}`)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := jinja.FromJSON(raw)
		if err != nil {
			return
		}
		d := jinja.NewDict()
		d.Set("v", v)
		text, err := tmpl.Render(t.Context(), d, jinja.Options{})
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if strings.Contains(text, "Infinity") {
			return
		}
		d2 := jinja.NewDict()
		v2, err := jinja.FromJSON([]byte(text))
		if err != nil {
			t.Fatalf("%s became %s: %v", raw, text, err)
		}
		d2.Set("v", v2)
		again, err := tmpl.Render(t.Context(), d2, jinja.Options{})
		if err != nil || again != text {
			t.Errorf("%s became %s, then %s, %v", raw, text, again, err)
		}
	})
}
