package grammar

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

const benchVocabulary = 150_000

const benchSchema = `{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},
	"bio":{"type":"string","maxLength":1000},"tags":{"type":"array","items":{"type":"string"}},
	"address":{"type":"object","properties":{"street":{"type":"string"},"zip":{"type":"string","pattern":"^[0-9]{5}$"}},"required":["street","zip"]},
	"extra":{}},"required":["name","age","bio","tags","address","extra"]}`

// walk records matchers along a random text of n tokens.
func walk(b *testing.B, g *Grammar, n int) []*Matcher {
	r := rand.New(rand.NewPCG(5, 5))
	m := g.NewMatcher()
	mask := make([]uint64, g.MaskLen())
	var path []*Matcher
	for len(path) < n {
		if m.Done() {
			m = g.NewMatcher()
		}
		path = append(path, m.Clone())
		if err := m.Mask(mask); err != nil {
			b.Fatal(err)
		}
		if err := m.Accept(pick(r, m, mask)); err != nil {
			b.Fatal(err)
		}
	}
	return path
}

func benchmarkMask(b *testing.B, s Spec) {
	g := compile(b, newCompiler(b, largeVocabulary(benchVocabulary)), s)
	path := walk(b, g, 400)
	mask := make([]uint64, g.MaskLen())
	for _, m := range path { // warm-up
		if err := m.Mask(mask); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for i := range b.N {
		if err := path[i%len(path)].Mask(mask); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(g.Bytes())/(1<<20), "MiB")
}

func BenchmarkMaskJSONObject(b *testing.B) { benchmarkMask(b, Spec{Kind: KindJSONObject}) }

func BenchmarkMaskSchema(b *testing.B) {
	benchmarkMask(b, Spec{Kind: KindJSONSchema, Text: benchSchema})
}

// BenchmarkMaskLengths has strings of many different greatest lengths.
func BenchmarkMaskLengths(b *testing.B) {
	var properties []string
	for i := range 12 {
		properties = append(properties, fmt.Sprintf(`"field%d":{"type":"string","minLength":%d,"maxLength":%d}`, i, 20+i, 200+90*i))
	}
	names := strings.Repeat(`"field%d",`, 12)
	required := fmt.Sprintf(names[:len(names)-1], 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
	benchmarkMask(b, Spec{Kind: KindJSONSchema, Text: `{"type":"object","properties":{` + strings.Join(properties, ",") + `},"required":[` + required + `]}`})
}

func BenchmarkMaskRegex(b *testing.B) {
	benchmarkMask(b, Spec{Kind: KindRegex, Text: `(\w+ ){3,200}[A-Z][a-z]*\.`})
}

func BenchmarkMaskEBNF(b *testing.B) {
	benchmarkMask(b, Spec{Kind: KindEBNF, Text: `root ::= sum
		sum ::= sum [-+] term | term
		term ::= term [*/] factor | factor
		factor ::= [a-z]+ | [0-9]+ | "(" sum ")"`})
}

// BenchmarkMaskCold is the first mask inside a string, the largest part there is.
func BenchmarkMaskCold(b *testing.B) {
	c := newCompiler(b, largeVocabulary(benchVocabulary))
	g := compile(b, c, Spec{Kind: KindJSONObject})
	m := g.NewMatcher()
	for _, t := range []uint32{'{', '"', 'a'} {
		if err := m.Accept(t); err != nil {
			b.Fatal(err)
		}
	}
	mask := make([]uint64, g.MaskLen())
	for b.Loop() {
		g.masks.reset()
		m.credit = creditStart
		if err := m.Mask(mask); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAccept(b *testing.B) {
	g := compile(b, newCompiler(b, largeVocabulary(benchVocabulary)), Spec{Kind: KindJSONSchema, Text: benchSchema})
	path := walk(b, g, 300)
	mask := make([]uint64, g.MaskLen())
	r := rand.New(rand.NewPCG(6, 6))
	tokens := make([]uint32, len(path))
	for i, m := range path {
		if err := m.Mask(mask); err != nil {
			b.Fatal(err)
		}
		tokens[i] = pick(r, m, mask)
	}
	b.ResetTimer()
	for i := range b.N {
		if err := path[i%len(path)].Clone().Accept(tokens[i%len(path)]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompileSchema(b *testing.B) {
	s := Spec{Kind: KindJSONSchema, Text: benchSchema}
	for b.Loop() {
		if err := s.Check(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNewCompiler(b *testing.B) {
	v := largeVocabulary(benchVocabulary)
	for b.Loop() {
		newCompiler(b, v)
	}
}
