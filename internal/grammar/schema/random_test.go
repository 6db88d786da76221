package schema

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dynctl/dynctl/internal/grammar/pda"
	"github.com/dynctl/dynctl/internal/grammar/schema/schematest"
)

// TestRandomSchemas generates from random schemas and validates what comes out.
func TestRandomSchemas(t *testing.T) {
	compiled, refused := 0, map[string]int{}
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 11))
		text, err := schematest.Random(r)
		if err != nil {
			t.Fatal(err)
		}
		a, err := compileAutomaton(text, Options{})
		var e *Error
		if errors.As(err, &e) || errors.Is(err, pda.ErrImpossible) {
			refused[fmt.Sprintf("%.24s", err)]++
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, text, err)
		}
		compiled++
		v := schematest.Compile(t, text)
		for i := range 4 {
			v.Validate(t, generate(t, a, r, i*i*5))
		}
	}
	if compiled < 400 {
		t.Errorf("only %d schemas compiled: %v", compiled, refused)
	}
}
