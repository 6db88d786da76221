package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/grammar/schema/schematest"
	"github.com/dynctl/dynctl/internal/patience"
)

const orderSchema = `{"type":"object","properties":{"id":{"type":"integer","minimum":1,"maximum":999},"name":{"type":"string","maxLength":40},
	"lines":{"type":"array","maxItems":3,"items":{"type":"object","properties":{"sku":{"type":"string","pattern":"^[A-Z]{2}-[0-9]+$"},"price":{"type":"number","minimum":0}},
	"required":["sku"]}},"parent":{"anyOf":[{"$ref":"#"},{"type":"null"}]},"extra":{}},"required":["id","lines","parent"]}`

const leftRecursive = `root ::= sum
	sum ::= sum [-+] term | term
	term ::= term "*" factor | factor
	factor ::= [a-z]{1,3} | "(" sum ")" | "é"`

// ambiguous has several readings of nearly every text, and empty rules.
const ambiguous = `root ::= list
	list ::= item list | list sep item | item | ""
	item ::= [ab]+ | "ab" opt | "{" list "}"
	opt ::= ("a" | sep)*
	sep ::= "," | ""`

func specs() map[string]Spec {
	return map[string]Spec{
		"json":      {Kind: KindJSONObject},
		"compact":   {Kind: KindJSONObject, Compact: true},
		"schema":    {Kind: KindJSONSchema, Text: orderSchema},
		"lengths":   {Kind: KindJSONSchema, Text: `{"type":"array","items":{"type":"string","minLength":18,"maxLength":300},"maxItems":2000}`},
		"regex":     {Kind: KindRegex, Text: `(a|b|[é-€]){2,40}( ok|\d{1,3})?`},
		"choice":    {Kind: KindChoice, Choices: []string{"yes", "no", "yes, ok", "é€", "true", "trueé"}},
		"left":      {Kind: KindEBNF, Text: leftRecursive},
		"ambiguous": {Kind: KindEBNF, Text: ambiguous},
	}
}

// bruteForce checks a mask against reading every token.
func bruteForce(t *testing.T, m *Matcher, mask []uint64) {
	t.Helper()
	for id := range uint32(len(m.g.c.tokens)) {
		c := m.Clone()
		err := c.Accept(id)
		if errors.Is(err, ErrAmbiguous) {
			return
		}
		if (err == nil) != has(mask, id) {
			t.Fatalf("token %d %q: accepted = %v, mask = %v", id, m.g.c.vocab.Tokens[id], err == nil, has(mask, id))
		}
		if err == nil && !c.CanEnd() && c.Mask(make([]uint64, len(mask))) != nil {
			t.Fatalf("token %d %q leads to a dead end", id, m.g.c.vocab.Tokens[id])
		}
	}
	for bit := len(m.g.c.tokens); bit < 64*len(mask); bit++ {
		if has(mask, uint32(bit)) {
			t.Fatalf("bit %d is beyond the vocabulary", bit)
		}
	}
}

func TestMaskIsBruteForce(t *testing.T) {
	for name, spec := range specs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(6) {
				r := rand.New(rand.NewPCG(seed, 9))
				g := compile(t, newCompiler(t, randomVocabulary(r, 250)), spec)
				for range 3 {
					generate(t, g, r, 12, func(m *Matcher, mask []uint64) {
						if r.IntN(3) == 0 {
							bruteForce(t, m, mask)
						}
					})
				}
			}
		})
	}
}

// TestSmallMaskCache drops cached parts all the time.
func TestSmallMaskCache(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	c, err := NewCompiler(randomVocabulary(r, 300), Options{MaskBytes: 2000})
	if err != nil {
		t.Fatal(err)
	}
	g := compile(t, c, Spec{Kind: KindJSONSchema, Text: orderSchema})
	for range 4 {
		generate(t, g, r, 30, func(m *Matcher, mask []uint64) { bruteForce(t, m, mask) })
	}
	if got := g.masks.size(); got > 12_000 {
		t.Errorf("masks take %d bytes", got)
	}
}

// TestGeneratedTexts checks whole texts with other implementations.
func TestGeneratedTexts(t *testing.T) {
	c := newCompiler(t, minitokVocabulary(t))
	valid := schematest.Compile(t, orderSchema)
	re := regexp.MustCompile("^(?:" + specs()["regex"].Text + ")$")
	checks := map[string]func(string) bool{
		"json":      func(s string) bool { var m map[string]any; return json.Unmarshal([]byte(s), &m) == nil },
		"compact":   func(s string) bool { return json.Valid([]byte(s)) },
		"schema":    func(s string) bool { return valid.Check(s) == nil },
		"lengths":   func(s string) bool { return json.Valid([]byte(s)) },
		"regex":     re.MatchString,
		"choice":    func(s string) bool { return strings.Contains("|yes|no|yes, ok|é€|true|trueé|", "|"+s+"|") },
		"left":      func(s string) bool { return regexp.MustCompile(`^[a-zé()*+-]+$`).MatchString(s) },
		"ambiguous": func(s string) bool { return strings.Count(s, "{") == strings.Count(s, "}") },
	}
	for name, spec := range specs() {
		t.Run(name, func(t *testing.T) {
			g := compile(t, c, spec)
			r := rand.New(rand.NewPCG(1, 1))
			for i := range 60 {
				if s := generate(t, g, r, i, nil); !checks[name](s) {
					t.Fatalf("generated %q", s)
				}
			}
		})
	}
}

// TestSchemas validates what is generated for the schemas of package schematest.
func TestSchemas(t *testing.T) {
	patience.OneGoroutine(t)
	compilers := []*Compiler{newCompiler(t, minitokVocabulary(t))}
	for seed := range uint64(3) {
		compilers = append(compilers, newCompiler(t, randomVocabulary(rand.New(rand.NewPCG(seed, 5)), 150)))
	}
	try := func(schema string, seed uint64) bool {
		c := compilers[seed%uint64(len(compilers))]
		g, err := c.JSONSchema(t.Context(), []byte(schema), SchemaOptions{Compact: seed%3 == 0})
		if err != nil {
			return false
		}
		valid := schematest.Compile(t, schema)
		for i := range 3 {
			valid.Validate(t, generate(t, g, rand.New(rand.NewPCG(seed, 7)), 4+i*12, nil))
		}
		return true
	}
	for name, schema := range schematest.Realistic() {
		for seed := range uint64(4) {
			if !try(schema, seed) {
				t.Errorf("%s is refused", name)
			}
		}
	}
	accepted := 0
	for seed := range uint64(120) {
		schema, err := schematest.Random(rand.New(rand.NewPCG(seed, 12)))
		if err != nil {
			t.Fatal(err)
		}
		if try(schema, seed) {
			accepted++
		}
	}
	if accepted < 70 {
		t.Errorf("%d random schemas accepted", accepted)
	}
}

func TestEnd(t *testing.T) {
	c := newCompiler(t, bytesVocabulary("yes", "no"))
	g := compile(t, c, Spec{Kind: KindChoice, Choices: []string{"yes", "yesno"}})
	eos := c.vocab.EOS[0]
	m := g.NewMatcher()
	mask := make([]uint64, g.MaskLen())
	if err := m.Accept(eos); !errors.Is(err, ErrRejected) {
		t.Errorf("end at the start: %v", err)
	}
	if m.CanEnd() || m.Done() || m.Shortest() != 3 || string(m.JumpForward()) != "yes" {
		t.Errorf("at the start: CanEnd %v, Done %v, Shortest %d, JumpForward %q", m.CanEnd(), m.Done(), m.Shortest(), m.JumpForward())
	}
	if err := m.Accept(256); err != nil {
		t.Fatal(err)
	}
	if err := m.Mask(mask); err != nil || !has(mask, eos) || !has(mask, 'n') || has(mask, 'y') || !m.CanEnd() || m.Done() {
		t.Errorf("after yes: %v, CanEnd %v, Done %v", err, m.CanEnd(), m.Done())
	}
	early := m.Clone()
	if err := early.Accept(eos); err != nil || !early.Done() {
		t.Errorf("end after yes: %v", err)
	}
	if err := early.Accept('n'); !errors.Is(err, ErrRejected) {
		t.Errorf("text after the end: %v", err)
	}
	if err := early.Accept(eos); err != nil || early.Mask(mask) != nil || !has(mask, eos) || has(mask, 'n') {
		t.Errorf("a second end: %v", err)
	}
	if err := m.Replay([]uint32{'n', 'o'}); err != nil || !m.Done() {
		t.Errorf("no: %v, Done %v", err, m.Done())
	}
	if err := m.Replay([]uint32{'x'}); !errors.Is(err, ErrRejected) || !m.Done() {
		t.Errorf("after all: %v", err)
	}
	if err := m.Accept(1 << 30); !errors.Is(err, ErrRejected) {
		t.Errorf("unknown token: %v", err)
	}
	if err := m.Mask(mask[1:]); !errors.Is(err, ErrMaskSize) {
		t.Errorf("short mask: %v", err)
	}
}

func TestReplay(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	g := compile(t, newCompiler(t, randomVocabulary(r, 200)), Spec{Kind: KindJSONSchema, Text: orderSchema})
	m := g.NewMatcher()
	mask, again := make([]uint64, g.MaskLen()), make([]uint64, g.MaskLen())
	var tokens []uint32
	for range 60 {
		if err := m.Mask(mask); err != nil {
			t.Fatal(err)
		}
		other := g.NewMatcher()
		if err := other.Replay(tokens); err != nil {
			t.Fatal(err)
		}
		if err := other.Mask(again); err != nil || fmt.Sprint(mask) != fmt.Sprint(again) {
			t.Fatalf("another mask after %d tokens: %v", len(tokens), err)
		}
		token := pick(r, m, mask)
		if err := m.Accept(token); err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
}

func TestConcurrentUse(t *testing.T) {
	c := newCompiler(t, minitokVocabulary(t))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 3))
			for _, spec := range specs() {
				g, err := c.Compile(t.Context(), spec)
				if err != nil {
					t.Error(err)
					return
				}
				generate(t, g, r, 10, nil)
			}
		})
	}
	wg.Wait()
}
