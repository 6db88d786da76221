package pattern

import (
	"errors"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

func run(t *testing.T, rules *pda.Rules, root pda.RuleID, text string) bool {
	t.Helper()
	a, err := pda.Compile(rules, root, nil, pda.DefaultLimits())
	if errors.Is(err, pda.ErrImpossible) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	var s pda.Scratch
	items, ended := a.Start(&s)
	for i := range len(text) {
		items, ended, _ = a.Step(&s, nil, items, text[i])
	}
	return ended
}

var samples = []string{
	"abc", "a|b", "(a|b)*c", "a?b+c*", "[a-c]{2,3}", "[^a]b", "(?i)aB", "^ab$", "^a|b$", "(^a|b)c", "a(b|$)", "(?:^|b)a", "a.c", "(?s)a.c",
	`\d\w\s`, `\x61`, `\u0061\u00e9`, "é[€-\u20af]", `\ud83d\ude00|a`, "", "()", "a*?b+?", "(ab){2}", "(a|ab)(c|bcd)", `\p{Lu}b`, "[[:alpha:]]c", "^$", "^^a$$", "(^a)?b",
	`\$\^`, "(?P<x>a)b", "(?<y>b)a", `\Qa.b\E`, "a{0}", "a{,2}",
}

func TestAgainstRegexp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	letters := []rune("aabbccABé€.$^1_ \n😀,{2}")
	for _, sample := range samples {
		p, err := Parse(sample)
		if err != nil {
			t.Errorf("%q: %v", sample, err)
			continue
		}
		var rules pda.Rules
		whole, err := p.Whole(plain)
		if err != nil {
			t.Errorf("%q: %v", sample, err)
			continue
		}
		search, err := p.Search(plain)
		if err != nil {
			t.Errorf("%q: %v", sample, err)
			continue
		}
		source, _ := translate(sample)
		found := regexp.MustCompile(source)
		full := regexp.MustCompile("^(?:" + source + ")$")
		low, high := r.IntN(4), r.IntN(7)-1
		bounded, err := p.SearchBounded(plain, low, high)
		if err != nil {
			t.Errorf("%q: %v", sample, err)
			continue
		}
		wholeRule, searchRule, boundedRule := rules.Add(whole), rules.Add(search), rules.Add(bounded)
		least, most := p.Length()
		for range 100 {
			var text string
			for range r.IntN(6) {
				text += string(letters[r.IntN(len(letters))])
			}
			if got, want := run(t, &rules, wholeRule, text), full.MatchString(text); got != want {
				t.Fatalf("%q whole %q: %v, want %v", sample, text, got, want)
			}
			got, want := run(t, &rules, searchRule, text), found.MatchString(text)
			if got != want {
				t.Fatalf("%q in %q: %v, want %v", sample, text, got, want)
			}
			n := len([]rune(text))
			if got, want := run(t, &rules, boundedRule, text), want && n >= low && (high < 0 || n <= high); got != want {
				t.Fatalf("%q in %q of %d to %d characters: %v, want %v", sample, text, low, high, got, want)
			}
			if want && (n < least || most >= 0 && n > most) {
				t.Fatalf("%q matches %q of %d characters, said %d to %d", sample, text, n, least, most)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		pattern string
		offset  int
		reason  string
	}{
		{"a(b", 0, "missing closing )"},
		{"ab[c", 2, "missing closing ]"},
		{"ab(?=c)", 2, "lookahead"},
		{"ab(?!c)", 2, "lookahead"},
		{"x(?<!c)", 1, "lookbehind"},
		{`(a)\1`, 3, "back references"},
		{"a{1001}", 1, "end at 1000"},
		{`\u00e9\q`, 6, "invalid escape"},
		{"a^b", 1, "^ after"},
		{"a$b", 1, "$ before"},
		{"(^a)*", 1, "^ inside"},
		{`a\bb`, 1, "word boundaries"},
		{"(?m)^a", 2, "line boundaries"},
	} {
		_, _, err := Compile(tt.pattern)
		var e *Error
		if !errors.As(err, &e) || e.Offset != tt.offset || !strings.Contains(e.Reason, tt.reason) {
			t.Errorf("%q: %v, want %q at %d", tt.pattern, err, tt.reason, tt.offset)
		}
	}
}

func FuzzCompile(f *testing.F) {
	for _, s := range samples {
		f.Add(s, "abc")
	}
	f.Fuzz(func(t *testing.T, source, text string) {
		if len(source) > 200 || len(text) > 50 {
			return
		}
		text = strings.ToValidUTF8(text, "")
		rules, root, err := Compile(source)
		if err != nil {
			return
		}
		a, err := pda.Compile(rules, root, nil, pda.DefaultLimits())
		if err != nil {
			return
		}
		translated, _ := translate(source)
		re, err := regexp.Compile("^(?:" + translated + ")$")
		if err != nil {
			return
		}
		var s pda.Scratch
		items, ended := a.Start(&s)
		for i := range len(text) {
			var ok bool
			if items, ended, ok = a.Step(&s, nil, items, text[i]); !ok {
				return
			}
		}
		if ended != re.MatchString(text) {
			t.Fatalf("%q matches %q: %v", source, text, ended)
		}
	})
}
