package grammar_test

import (
	"context"
	"fmt"
	"math/bits"

	"github.com/dynctl/dynctl/internal/grammar"
)

// A model that always prefers the highest id is held to a pattern.
func Example() {
	v := grammar.Vocabulary{EOS: []uint32{0}}
	for _, token := range []string{"", "a", "b", "n", "o", "y", "e", "s", "yes", "no"} {
		v.Tokens = append(v.Tokens, []byte(token))
	}
	c, err := grammar.NewCompiler(v, grammar.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	g, err := c.Compile(context.Background(), grammar.Spec{Kind: grammar.KindRegex, Text: "(no|yes)+a?"})
	if err != nil {
		fmt.Println(err)
		return
	}
	m := g.NewMatcher()
	mask := make([]uint64, g.MaskLen())
	for !m.Done() {
		if err := m.Mask(mask); err != nil {
			fmt.Println(err)
			return
		}
		token := uint32(bits.Len64(mask[0]) - 1)
		if m.CanEnd() {
			token = 1 // a
		}
		if err := m.Accept(token); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s\n", v.Tokens[token])
	}
	// Output:
	// no
	// a
}
