package chat

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/grammar"
	"github.com/dynctl/dynctl/internal/protocol"
)

func constrained(t *testing.T) *Processor {
	t.Helper()
	tokenizer, err := os.ReadFile("testdata/llama3-like.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Load(Files{TokenizerFile: tokenizer, GenerationConfigFile: []byte(`{"eos_token_id": 1}`)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func allowed(t *testing.T, c *Constraint, words int) map[uint32]bool {
	t.Helper()
	mask := make([]uint64, words)
	if err := c.Mask(mask); err != nil {
		t.Fatal(err)
	}
	out := map[uint32]bool{}
	for i := range uint32(words * 64) {
		if mask[i/64]>>(i%64)&1 == 1 {
			out[i] = true
		}
	}
	return out
}

func TestConstraint(t *testing.T) {
	p := constrained(t)
	words := (p.VocabSize() + 63) / 64
	yes := p.EncodeText("yes")
	for name, length := range map[string]int{"exact": words, "padded rows": words + 3, "fewer rows": words - 1} {
		t.Run(name, func(t *testing.T) {
			c, err := p.NewConstraint(t.Context(), protocol.Guided{Kind: string(grammar.KindChoice), Choices: []string{"yes", "no"}})
			if err != nil {
				t.Fatal(err)
			}
			for id := range allowed(t, c, length) {
				if text := p.Decode([]uint32{id}); text == "" || !strings.HasPrefix("yes", text) && !strings.HasPrefix("no", text) {
					t.Errorf("token %d, %q, is allowed", id, text)
				}
			}
			for _, id := range yes {
				if err := c.Accept(id); err != nil {
					t.Fatal(err)
				}
			}
			if !c.Done() {
				t.Error("not done")
			}
			if got := allowed(t, c, length); len(got) != 1 || !got[1] {
				t.Errorf("after the end: %v", got)
			}
			if err := c.Accept(yes[0]); !errors.Is(err, grammar.ErrRejected) {
				t.Errorf("accepted after the end: %v", err)
			}
		})
	}
}

// Reasoning is free until its last token, but cannot end the text.
func TestConstraintAfter(t *testing.T) {
	p := constrained(t)
	words := (p.VocabSize() + 63) / 64
	end := p.EncodeText("x")[0]
	c, err := p.NewConstraint(t.Context(), protocol.Guided{Kind: string(grammar.KindRegex), Text: "a", After: []uint32{end}})
	if err != nil {
		t.Fatal(err)
	}
	if got := allowed(t, c, words); len(got) != words*64-1 || got[1] || c.Done() {
		t.Errorf("%d of %d tokens, end %v", len(got), words*64, got[1])
	}
	for _, id := range append(p.EncodeText("hm "), end) {
		if err := c.Accept(id); err != nil {
			t.Fatal(err)
		}
	}
	for id := range allowed(t, c, words) {
		if p.Decode([]uint32{id}) != "a" {
			t.Errorf("token %d is allowed", id)
		}
	}
}

func TestCheckGuided(t *testing.T) {
	p := constrained(t)
	var schema *grammar.SchemaError
	if err := p.CheckGuided(t.Context(), protocol.Guided{Kind: string(grammar.KindJSONSchema), Text: `{"minimum":5,"maximum":3,"type":"integer"}`}); !errors.As(err, &schema) || !strings.HasPrefix(schema.Path, "#") {
		t.Errorf("got %v", err)
	}
	if err := p.CheckGuided(t.Context(), protocol.Guided{Kind: "poem"}); !errors.Is(err, grammar.ErrSpec) {
		t.Errorf("got %v", err)
	}
}
