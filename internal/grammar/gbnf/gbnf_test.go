package gbnf

import (
	"errors"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

func accepts(t *testing.T, source, text string) bool {
	t.Helper()
	rules, root, err := Compile(source)
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	a, err := pda.Compile(rules, root, nil, pda.DefaultLimits())
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	var s pda.Scratch
	items, ended := a.Start(&s)
	for i := range len(text) {
		items, ended, _ = a.Step(&s, nil, items, text[i])
	}
	return ended
}

const arithmetic = `
# expressions, recursive to the left
root  ::= sum "\n"
sum   ::= sum [-+] term | term
term  ::= term ("*" | "/") factor
        | factor
factor ::= number | "(" sum ")"
number ::= [0-9]+ ("." [0-9]{1,3})?   # no exponent
`

const chess = `
root   ::= (move " "?){1,3} "\u002e"
move   ::= [NBRQK]?[a-h] [1-8] ("x" [a-h] [1-8])? [+#]? | "O-O" "-O"?
`

func TestGrammars(t *testing.T) {
	for _, tt := range []struct {
		source  string
		yes, no []string
	}{
		{arithmetic, []string{"1\n", "1+2*(3-4.125)/5\n", "((1))\n"}, []string{"", "1", "1+\n", "1.\n", "1.2345\n", "(1\n"}},
		{chess, []string{"e4.", "Nf3 e4xd5 O-O-O.", "O-O+.", "e4e5."}[:2], []string{"", ".", "e9.", "e4 e5 e6 e7."}},
		{`root ::= "a"{2} "b"{,2} "c"{1,}`, []string{"aac", "aabbccc"}, []string{"ac", "aabbbc", "aab"}},
		{`root ::= [^a-c\]]+`, []string{"é\n-"}, []string{"", "a", "x]"}},
		{`root ::= "" | .`, []string{"", "\n", "€"}, []string{"xx"}},
		{`root ::= [a\-z-]+ "\"\\\x41\U0001F600"`, []string{"a-z\"\\A😀"}, []string{"b\"\\A😀"}},
		{"root ::= x\n | y\nx ::= \"x\"\ny::=\"y\"*", []string{"x", "", "yy"}, []string{"xy"}},
		{`root ::= ("a"+)? "b"*+`, []string{"", "aab"}, []string{"ba"}},
		{`root ::= a-1 unused_2 ::= root a-1 ::= "1"`, []string{"1"}, []string{"11"}},
	} {
		for _, text := range tt.yes {
			if !accepts(t, tt.source, text) {
				t.Errorf("%s does not match %q", tt.source, text)
			}
		}
		for _, text := range tt.no {
			if accepts(t, tt.source, text) {
				t.Errorf("%s matches %q", tt.source, text)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		source       string
		line, column int
		reason       string
	}{
		{"", 1, 1, "no rule root"},
		{"a ::= \"x\"", 1, 10, "no rule root"},
		{"root ::= a\n\nb ::= c", 1, 10, "rule a is not defined"},
		{"root ::= \"a\nb\"", 1, 10, "not closed"},
		{"root ::= [a\n", 1, 10, "not closed"},
		{"root ::= (\"a\"\n|(\"b\"", 2, 2, "not closed"},
		{"root ::= \"a\" )", 1, 14, "unexpected ')'"},
		{"root ::= \"a\"\n\nroot ::= \"b\"", 3, 1, "a second time"},
		{"root ::= [z-a]", 1, 11, "down to"},
		{`root ::= "\q"`, 1, 11, "unknown escape"},
		{`root ::= "\u12"`, 1, 11, "4 digits"},
		{`root ::= "\ud800"`, 1, 11, "no Unicode"},
		{`root ::= "a"{3,2}`, 1, 13, "at least 3"},
		{`root ::= "a"{,}`, 1, 13, "needs a count"},
		{`root ::= "a"{1`, 1, 13, "not closed"},
		{`root ::= "a"{100001}`, 1, 14, "end at 100000"},
		{"root = \"a\"", 1, 6, "::= is missing"},
		{"root ::= \"a\"\n= b", 2, 1, "unexpected '='"},
		{"root ::= \"\xff\"", 1, 11, "not UTF-8"},
		{"root ::= " + strings.Repeat("(", 300), 1, 210, "more than 200 deep"},
		{"root ::= \"a\"" + strings.Repeat("+", 300), 1, 214, "more than 200"},
		{"root ::= <think>", 1, 10, "unexpected '<'"},
	} {
		_, _, err := Compile(tt.source)
		var e *Error
		if !errors.As(err, &e) || e.Line != tt.line || e.Column != tt.column || !strings.Contains(e.Reason, tt.reason) {
			t.Errorf("%.40q: %v, want %q at %d:%d", tt.source, err, tt.reason, tt.line, tt.column)
		}
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(arithmetic)
	f.Add(chess)
	f.Add("root ::= root root | [^\\x00-a]{2,} | ((\"a\"*)*)* | .")
	f.Fuzz(func(t *testing.T, source string) {
		if len(source) > 4000 {
			return
		}
		rules, root, err := Compile(source)
		if err != nil {
			return
		}
		a, err := pda.Compile(rules, root, nil, pda.DefaultLimits())
		if err != nil {
			return
		}
		var s pda.Scratch
		items, ended := a.Start(&s)
		for i := 0; i < 50 && len(items) > 0; i++ {
			// Follow the first byte that fits; there must be one.
			found := false
			for b := range 256 {
				out, end, ok := a.Step(&s, nil, items, byte(b))
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
