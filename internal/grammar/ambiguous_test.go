package grammar

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/patience"
)

// starving has an endless number of readings of every text.
const starving = `root ::= a a a a a a a a a
	a ::= b b b b b b b b
	b ::= c c c c c c
	c ::= [a-z ]* | [ a-z]* c`

// TestAmbiguousIsCheap: readings that go on alike are one, so that such a grammar costs
// little more than what it stands for.
func TestAmbiguousIsCheap(t *testing.T) {
	patience.OneGoroutine(t)
	c := newCompiler(t, largeVocabulary(20_000))
	for name, text := range map[string]string{
		"starving":  starving,
		"variation": strings.NewReplacer("a-z ]* |", "a-z]+ | \"\" |", " c`", " c c`").Replace(starving),
		"doubling":  `root ::= root root | [a-z]`,
	} {
		t.Run(name, func(t *testing.T) {
			g := compile(t, c, Spec{Kind: KindEBNF, Text: text})
			m := g.NewMatcher()
			mask := make([]uint64, g.MaskLen())
			r := rand.New(rand.NewPCG(2, 2))
			most := 0
			for i := range 300 {
				m.credit = creditStart / 2
				if err := m.Mask(mask); err != nil {
					t.Fatalf("token %d: %v", i, err)
				}
				for _, id := range c.vocab.EOS {
					mask[id/64] &^= 1 << (id % 64)
				}
				token, ok := anyOf(mask, r.IntN(64*len(mask)))
				if !ok {
					t.Fatalf("token %d: the text cannot go on", i)
				}
				if err := m.Accept(token); err != nil {
					t.Fatalf("token %d: %v", i, err)
				}
				if i >= 40 {
					most = max(most, creditStart/2+creditToken-m.credit)
				}
			}
			if most > 150_000 || len(m.items) > 64 {
				t.Errorf("a token costs up to %d steps, and there are %d items", most, len(m.items))
			}
		})
	}
}

// TestTooAmbiguousIsRefused: what cannot be merged is refused before it is used, within
// a bound of its cost, and for nothing the second time.
func TestTooAmbiguousIsRefused(t *testing.T) {
	patience.OneGoroutine(t)
	var deep strings.Builder
	deep.WriteString("root ::= r0{400}\n")
	for i := range 300 {
		fmt.Fprintf(&deep, "r%d ::= [a-z]* r%d? r%d [a-z]* | r%d r%d | \"\"\n", i, (i+1)%300, (i*7+3)%300, (i*11+5)%300, (i*13+1)%300)
	}
	c := newCompiler(t, largeVocabulary(20_000))
	for name, text := range map[string]string{
		"deep": deep.String(),
		"mutual": `root ::= x y | y x | [a-z]
			x ::= root root | y | ""
			y ::= x x | root | [ ]?`,
	} {
		s := Spec{Kind: KindEBNF, Text: text}
		_, err := c.Compile(t.Context(), s)
		if !errors.Is(err, ErrAmbiguous) {
			t.Fatalf("%s is compiled: %v", name, err)
		}
		if _, again := c.Compile(t.Context(), s); again != err {
			t.Errorf("%s, the second time: %v", name, again)
		}
	}
	for i := range c.options.Refused + 10 {
		if _, err := c.Regex(t.Context(), strings.Repeat("(", i+1)); err == nil {
			t.Fatal("a malformed expression is compiled")
		}
	}
	if n := len(c.refused); n != c.options.Refused || n != len(c.oldest) {
		t.Errorf("%d refusals are remembered, %d in order", n, len(c.oldest))
	}
}

// TestCreditEnds: a sequence that costs more than its credit ends, and no other does.
func TestCreditEnds(t *testing.T) {
	g := compile(t, newCompiler(t, largeVocabulary(20_000)), Spec{Kind: KindEBNF, Text: starving})
	poor, other := g.NewMatcher(), g.NewMatcher()
	mask := make([]uint64, g.MaskLen())
	g.masks.reset()
	poor.credit = 1000
	if err := poor.Mask(mask); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("mask without credit: %v", err)
	}
	poor.credit = 0
	if err := poor.Accept('a'); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("token without credit: %v", err)
	}
	if err := other.Mask(mask); err != nil {
		t.Errorf("another sequence: %v", err)
	}
	if err := other.Accept('a'); err != nil {
		t.Errorf("another sequence: %v", err)
	}
}

// TestCompileQueue: callers wait for compilations in a bounded queue, as long as they
// want to.
func TestCompileQueue(t *testing.T) {
	c, err := NewCompiler(bytesVocabulary(), Options{Compiling: 1, Waiting: 1})
	if err != nil {
		t.Fatal(err)
	}
	c.slots <- struct{}{} // as if one were compiled
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	first := make(chan error, 1)
	go func() {
		_, err := c.Regex(ctx, "a")
		first <- err
	}()
	for c.waiting.Load() == 0 {
		select {
		case err := <-first:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
	}
	if _, err := c.Regex(t.Context(), "b"); !errors.Is(err, ErrBusy) {
		t.Errorf("behind the queue: %v", err)
	}
	cancel(cause)
	if err := <-first; !errors.Is(err, cause) {
		t.Errorf("cancelled: %v", err)
	}
	<-c.slots
	if _, err := c.Regex(t.Context(), "b"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
