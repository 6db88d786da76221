package grammar

import (
	"math/rand/v2"
	"testing"
)

// pick chooses a random token that is allowed, an end one seldom.
func pick(r *rand.Rand, m *Matcher, mask []uint64) uint32 {
	var ids []uint32
	for id := range uint32(len(m.g.c.tokens)) {
		if has(mask, id) {
			ids = append(ids, id)
		}
	}
	for range 3 {
		if id := ids[r.IntN(len(ids))]; m.g.c.usable(id) {
			return id
		}
	}
	return ids[r.IntN(len(ids))]
}

// nearest chooses the allowed token of one byte that brings the end nearest.
func nearest(m *Matcher, mask []uint64) uint32 {
	if m.CanEnd() {
		return m.g.c.vocab.EOS[0]
	}
	best, shortest := uint32(0), -1
	for id, token := range m.g.c.tokens {
		if len(token) != 1 || !has(mask, uint32(id)) {
			continue
		}
		c := m.Clone()
		if c.Accept(uint32(id)) != nil {
			continue
		}
		if n := c.Shortest(); shortest < 0 || n < shortest {
			best, shortest = uint32(id), n
		}
	}
	return best
}

// generate writes a text: free random tokens, then the nearest end. Each mask is
// given to look at before its token is chosen.
func generate(t *testing.T, g *Grammar, r *rand.Rand, free int, look func(*Matcher, []uint64)) string {
	t.Helper()
	text, _ := generateTokens(t, g, r, free, look)
	return text
}

func generateTokens(t *testing.T, g *Grammar, r *rand.Rand, free int, look func(*Matcher, []uint64)) (string, []uint32) {
	t.Helper()
	var ids []uint32
	m := g.NewMatcher()
	mask := make([]uint64, g.MaskLen())
	var out []byte
	for n := 0; ; n++ {
		if err := m.Mask(mask); err != nil {
			t.Fatalf("after %q: %v", out, err)
		}
		if look != nil {
			look(m, mask)
		}
		token := uint32(0)
		if n < free {
			token = pick(r, m, mask)
		} else {
			token = nearest(m, mask)
		}
		if !g.c.usable(token) {
			if err := m.Accept(token); err != nil || !m.Done() {
				t.Fatalf("end after %q: %v", out, err)
			}
			return string(out), ids
		}
		ids = append(ids, token)
		text := g.c.tokens[token]
		if first, ok := g.c.vocab.First[token]; ok && n == 0 {
			text = first
		}
		out = append(out, text...)
		if err := m.Accept(token); err != nil {
			t.Fatalf("after %q, token %q: %v", out, text, err)
		}
		if n > free+20_000 {
			t.Fatalf("no end: %q", out[:300])
		}
	}
}
