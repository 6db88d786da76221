package tokenizer

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// regexPatterns exercise the translation; TestOracle compares what they
// match with the original engine.
var regexPatterns = []string{
	gpt2Pattern, llama3Pattern, o200kPattern, tekkenPattern, qwen35Pattern, deepseekPattern, kimiPattern, cl100kPattern, bloomPattern,
	`\w+`, `\W+`, `[^\W\d]+`, `[\w']+`, `\h+`, `\H`, `[\h-]+`, `\d{2}`, `\s+$`, `^\s*`, `\w$`, `^\w`, `\b\w`, `\B\w`, `\b`,
	`[[:alpha:]]+|[[:digit:]]`, `[[:^alpha:]]`, `[[:punct:]]`, `[[:upper:][:digit:]]`, `[[:space:]]+`, `[[:xdigit:]]+`, `[[:alnum:]]+`, `[[:cntrl:]]`, `[[:blank:]]`, `[[:word:]]+`,
	`\p{Punct}`, `\p{Alpha}+`, `\p{Letter}`, `\p{Uppercase_Letter}`, `\p{^L}`, `\P{L}+`, `\p{han}`, `\p{Greek}+`, `[\p{L}\p{^N}]`, `\p{Any}`,
	`(?i:k)`, `(?i:å)`, `(?i:the)`, `(?i)THE|S`, `(?i:[a-k])+`, `(?i:[^s])`, `(?i:\p{Lu})`, `(?i:ω)`,
	`a{,3}`, `l{2}`, `l{1,}`, `l{1}?`, `l{2}?`, `(?:ll){2}?`, `\p{N}{1,3}+`, `l{1,2}?`, `l++`, `e?+e`, `[a-z]*+[A-Z]`, `l**`, `a{x}`, `{`, `}`, `]`,
	`[a-z&&[^aeiou]]+`, `[[a-c][x-z]]`, `[^[a-c]\s]`, `[\p{L}&&\p{Lu}]`, `[^a-z&&[aeiou]]`, `[a-e&&c-z&&[^d]]`, `[[^a-z]&&[^A-Z]]`, `[a[^\s]]`,
	`[\]\-a]`, `[a\-z]`, `[-a]`, `[a-]`, `[]a]`, `[a-c-z]`, `[.*+?|(){}^$#]`, `[\x41\u0042\x{43}\n\t]`,
	`\R`, `\N+`, `\O`, `(?m:.)`, `.+`, `(?m:a.b)`, `(?#comment)e`, `\x{65}`, `\u0065`, `\x65`, `\t`, `\e`, `\a`, `\0`, `\145`,
	`(?<x>\w)\k<x>`, `(\p{L})\1`, `(?<=\s)\w+`, `(?<!\w)\d`, `e(?=l)`, `e(?!l)`, `(?>l+)`, `\Ah`, `.\z`, `.\Z`, `\G.`, ` ?\#`, `\/\-\_`,
	`x*`, `(?=l)`, `|l`, `l|`,
}

func TestTranslateRegex(t *testing.T) {
	cases := []struct{ in, want string }{
		{`a++`, `(?>a+)`},
		{`a{1,2}+`, `(?:a{1,2})+`},
		{`a{2}?`, `(?:a{2})?`},
		{`a{,3}`, `a{0,3}`},
		{`(?i:s)`, `(?:[sſS])`},
		{`(?m:.)`, `(?s:.)`},
		{`[a-z&&[^aeiou]]`, `[a-z-[aeiou]]`},
		{`[a[bc]]`, `[abc]`},
		{`\h`, `[0-9A-Fa-f]`},
		{`[[:digit:]]`, `[\p{Nd}]`},
	}
	for _, c := range cases {
		got, err := translateRegex(c.in)
		if err != nil || got != c.want {
			t.Errorf("translateRegex(%s) = %s, %v; want %s", c.in, got, err, c.want)
		}
	}
	for _, p := range regexPatterns {
		if _, err := newRegexFinder(p); err != nil {
			t.Error(err)
		}
	}
}

func TestTranslateRegexRefuses(t *testing.T) {
	for _, p := range []string{
		`(`, `)`, `[`, `[a`, `[]`, `[^]`, `a|*`, `+`, `[z-a]`, `[[:nope:]]`, `[[:alpha`, `\p`, `\p{}`, `\p{Nope}`, `\`, `\xFF`, `\x{110000}`, `\x{D800}`, `\u12`,
		`\y`, `\X`, `\K`, `\g<1>`, `\k`, `\k<a b>`, `\k<a`, `(?~a)`, `(?x)a`, `(?`, `(?<`, `(?<a`, `(?#`, `a(?i)b`, `(?i:(a)\1)`, `a{100001}`, `[a&&]`, `[\y]`,
		strings.Repeat("[", 200), strings.Repeat("(?:", 200) + strings.Repeat(")", 200),
	} {
		if _, err := newRegexFinder(p); !errors.Is(err, ErrPattern) {
			t.Errorf("pattern %.40s: error %v, want %v", p, err, ErrPattern)
		}
	}
}

func TestRegexFinderEmptyMatches(t *testing.T) {
	f, err := newRegexFinder(`x*`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.spans(nil, "éxxa")
	if err != nil {
		t.Fatal(err)
	}
	if want := []span{{0, 0}, {2, 4}, {5, 5}}; !slices.Equal(got, want) {
		t.Errorf("spans = %v, want %v", got, want)
	}
}

// TestPatternTimeout runs a pattern that backtracks without end.
func TestPatternTimeout(t *testing.T) {
	f := smallFile()
	f["pre_tokenizer"] = sequenceOf("pretokenizers", split(`(?:h|hh|[g-i])+[!?]`, "Isolated"), byteLevel(false, false))
	tok, err := Load(marshal(t, f))
	if err != nil {
		t.Fatal(err)
	}
	tok.preTokenizers[0].(*splitStep).finder.(regexFinder).re.MatchTimeout = 50 * time.Millisecond
	ids, err := tok.EncodeChecked(nil, strings.Repeat("h", 60), false)
	if !errors.Is(err, ErrPatternTimeout) {
		t.Fatalf("error %v, want %v", err, ErrPatternTimeout)
	}
	if len(ids) != 60 {
		t.Errorf("%d ids, want the text unsplit in 60", len(ids))
	}
}
