package grammar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
)

func TestCompileErrors(t *testing.T) {
	patience.OneGoroutine(t)
	c := newCompiler(t, bytesVocabulary())
	for _, tt := range []struct {
		spec   Spec
		is     error
		reason string
	}{
		{Spec{}, ErrSpec, "unknown kind"},
		{Spec{Kind: KindChoice}, ErrSpec, "empty"},
		{Spec{Kind: KindRegex, Text: "\xff"}, ErrSpec, "UTF-8"},
		{Spec{Kind: KindChoice, Choices: []string{"\xff"}}, ErrSpec, "UTF-8"},
		{Spec{Kind: KindRegex, Text: strings.Repeat("a", 300<<10)}, ErrTooLarge, "at most"},
		{Spec{Kind: KindChoice, Choices: make([]string, 300<<10)}, ErrTooLarge, "at most"},
		{Spec{Kind: KindRegex, Text: strings.Repeat("a", 250<<10)}, ErrTooLarge, "states"},
		{Spec{Kind: KindRegex, Text: `[^\x00-\x{10ffff}]`}, ErrImpossible, ""},
		{Spec{Kind: KindEBNF, Text: `root ::= "a" root`}, ErrImpossible, ""},
	} {
		g, err := c.Compile(t.Context(), tt.spec)
		if g != nil || !errors.Is(err, tt.is) || !strings.Contains(fmt.Sprint(err), tt.reason) {
			t.Errorf("%.60v: %v, want %v: %s", tt.spec, err, tt.is, tt.reason)
		}
		if err := tt.spec.Check(); !errors.Is(err, tt.is) {
			t.Errorf("%.60v: Check: %v", tt.spec, err)
		}
	}
	var se *SchemaError
	if _, err := c.JSONSchema(t.Context(), []byte(`{"items":{"minimum":2,"maximum":1}}`), SchemaOptions{}); !errors.As(err, &se) || se.Path != "#/items" {
		t.Errorf("schema: %v", err)
	}
	if _, err := c.JSONSchema(t.Context(), []byte(`{"$ref":"#"}`), SchemaOptions{}); !errors.As(err, &se) || se.Path != "#" {
		t.Errorf("endless schema: %v", err)
	}
	var re *RegexError
	if _, err := c.Regex(t.Context(), "ab(?=c)"); !errors.As(err, &re) || re.Offset != 2 {
		t.Errorf("regular expression: %v", err)
	}
	var ge *EBNFError
	if _, err := c.EBNF(t.Context(), "root ::= a\n"); !errors.As(err, &ge) || ge.Line != 1 || ge.Column != 10 {
		t.Errorf("EBNF: %v", err)
	}
	if len(c.cache) != 0 || c.order.Len() != 0 || c.bytes != 0 {
		t.Errorf("failures stay in the cache: %d entries, %d bytes", len(c.cache), c.bytes)
	}
}

func TestSpecJSON(t *testing.T) {
	in := Spec{Kind: KindChoice, Text: "t", Choices: []string{"a"}, Lax: true, Compact: true}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out Spec
	if err := json.Unmarshal(b, &out); err != nil || !reflect.DeepEqual(in, out) {
		t.Errorf("%s: %+v, %v", b, out, err)
	}
}

func TestCache(t *testing.T) {
	c, err := NewCompiler(bytesVocabulary(), Options{Entries: 3})
	if err != nil {
		t.Fatal(err)
	}
	choice := func(s string) *Grammar { return compile(t, c, Spec{Kind: KindChoice, Choices: []string{s}}) }
	a := choice("a")
	if choice("a") != a {
		t.Error("compiled twice")
	}
	choice("b")
	choice("c")
	choice("a")
	choice("d") // b is the one not used for longest
	if choice("a") != a || c.order.Len() != 3 {
		t.Errorf("a was dropped; %d entries", c.order.Len())
	}
	compact, plain := compile(t, c, Spec{Kind: KindJSONObject, Compact: true}), compile(t, c, Spec{Kind: KindJSONObject})
	if compact == plain {
		t.Error("options are not part of the key")
	}
	if err := plain.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	var sum int64
	for e := c.order.Front(); e != nil; e = e.Next() {
		if g := e.Value.(*cached).g; g != nil {
			sum += g.Bytes()
		}
	}
	if c.bytes != sum {
		t.Errorf("%d bytes counted, %d used", c.bytes, sum)
	}
	if err := a.NewMatcher().Accept('a'); err != nil {
		t.Errorf("a grammar outside the cache: %v", err)
	}
}

func TestCacheBytes(t *testing.T) {
	c, err := NewCompiler(bytesVocabulary(), Options{Bytes: 40_000})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		g := compile(t, c, Spec{Kind: KindRegex, Text: fmt.Sprintf("[a-z]{%d}", i+1)})
		generate(t, g, rand.New(rand.NewPCG(1, 1)), 10, nil)
		if c.bytes > 40_000 && c.order.Len() > 1 {
			t.Fatalf("%d bytes in %d entries", c.bytes, c.order.Len())
		}
	}
	if c.order.Len() == 50 {
		t.Error("nothing was dropped")
	}
}

func TestPrepare(t *testing.T) {
	g := compile(t, newCompiler(t, minitokVocabulary(t)), Spec{Kind: KindJSONObject})
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if err := g.Prepare(ctx); !errors.Is(err, cause) {
		t.Errorf("cancelled: %v", err)
	}
	if err := g.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := g.masks.size()
	for s := range int32(g.a.States()) {
		if g.a.Reads(s) {
			g.masks.state(s, new(int))
		}
	}
	if g.masks.size() != before {
		t.Error("states were left out")
	}
}

func TestVocabularyErrors(t *testing.T) {
	token := [][]byte{[]byte("a")}
	for _, v := range []Vocabulary{{}, {Tokens: token, EOS: []uint32{1}}, {Tokens: token, First: map[uint32][]byte{7: nil}}} {
		if _, err := NewCompiler(v, Options{}); !errors.Is(err, ErrVocabulary) {
			t.Errorf("%v: %v", v, err)
		}
	}
}

// TestSpelling: what the tokens cannot spell to the end is not begun.
func TestSpelling(t *testing.T) {
	words := func(more ...string) Vocabulary {
		v := Vocabulary{EOS: []uint32{0}, Tokens: [][]byte{[]byte("</s>")}}
		for _, s := range append(strings.Split(`{}":, abcé€`, ""), more...) {
			v.Tokens = append(v.Tokens, []byte(s))
		}
		return v
	}
	c := newCompiler(t, words("bé", "\xe2\x82", "😀x", "zz"))
	for _, tt := range []struct {
		pattern string
		ok      bool
	}{
		{"abc", true}, {"x", false}, {"x|a", true}, {"é€", true}, {"😀", false}, {"[€-₮]é", true}, {"zz", false}, {"a{3}", true}, {".*", true}, {"[^abc]", true},
	} {
		g, err := c.Regex(t.Context(), tt.pattern)
		if !tt.ok {
			if !errors.Is(err, ErrImpossible) {
				t.Errorf("%s: %v", tt.pattern, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.pattern, err)
			continue
		}
		for seed := range uint64(20) {
			m := g.NewMatcher()
			mask := make([]uint64, g.MaskLen())
			r := rand.New(rand.NewPCG(seed, 2))
			for range 30 {
				if err := m.Mask(mask); err != nil {
					t.Fatalf("%s: %v", tt.pattern, err)
				}
				bruteForce(t, m, mask)
				if m.Done() {
					break
				}
				if err := m.Accept(pick(r, m, mask)); err != nil {
					t.Fatalf("%s: %v", tt.pattern, err)
				}
				if m.ended {
					break
				}
			}
		}
	}
	if _, err := c.JSONObject(t.Context()); err != nil {
		t.Errorf("{} can be spelled: %v", err)
	}
}

// TestHostile compiles and runs what is made to cost much. The bound only tells
// bounded from unbounded.
func TestHostile(t *testing.T) {
	patience.OneGoroutine(t)
	c := newCompiler(t, minitokVocabulary(t))
	chain := "root ::= r0\n"
	for i := range 600 {
		chain += fmt.Sprintf("r%d ::= r%d \"a\" | \"b\" r%d?\n", i, (i+1)%600, (i*7)%600)
	}
	for name, s := range map[string]Spec{
		"exponential":   {Kind: KindRegex, Text: `(a|b)*a(a|b){500}`},
		"unicode":       {Kind: KindRegex, Text: `(\p{L}|\p{N}){900}\pL*\p{Lu}{90}`},
		"nested counts": {Kind: KindEBNF, Text: `root ::= ((("a"{0,99999}){0,99999}){0,99999} "b"?){99999}`},
		"nested stars":  {Kind: KindEBNF, Text: `root ::= (((("a"*)*)*)+ root?)*`},
		"ambiguous":     {Kind: KindEBNF, Text: `root ::= root root root | root root | "a" | ""`},
		"chain":         {Kind: KindEBNF, Text: chain},
		"long":          {Kind: KindEBNF, Text: `root ::= "` + strings.Repeat("abcdefgh", 8_000) + `"`},
		"many":          {Kind: KindChoice, Choices: strings.Split(strings.Repeat("abcd 1 ef 22 ghi ", 8000), " ")},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			g, err := c.Compile(t.Context(), s)
			t.Logf("compiled in %v: %v", time.Since(start), err)
			if err != nil {
				return
			}
			t.Logf("%d states, %d rules, %d bytes", g.a.States(), g.a.Rules(), g.a.Bytes())
			r := rand.New(rand.NewPCG(1, 1))
			m := g.NewMatcher()
			mask := make([]uint64, g.MaskLen())
			for range 60 {
				if m.Mask(mask) != nil || m.Done() {
					break
				}
				if m.Accept(pick(r, m, mask)) != nil {
					break
				}
			}
			t.Logf("ran in %v", time.Since(start))
		})
	}
}
