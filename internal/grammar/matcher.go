package grammar

import (
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

// Matcher is the state of one sequence. It is not safe for concurrent use.
type Matcher struct {
	g       *Grammar
	items   []pda.Item // immutable: clones share them
	canEnd  bool
	fresh   bool // no token has been accepted
	ended   bool // an end-of-sequence id has been accepted
	scratch pda.Scratch
	now     []pda.Item // scratch
	next    []pda.Item
	credit  int // remaining cost of the sequence, see creditStart
	budget  int // of the mask being made
	seen    []visit
	visited map[visit]struct{} // of seen, once it is long
}

// visit is a set of ends together with the frame above which it was looked at.
type visit struct {
	from  *ends
	frame *pda.Frame
}

// MaskLen returns the length of a mask, in words of 64 tokens. Token i is bit i%64 of
// word i/64.
func (g *Grammar) MaskLen() int { return g.c.words }

// Mask sets dst to the tokens that may follow. At the end these are only the
// end-of-sequence ids. It returns ErrMaskSize, ErrNoToken or ErrAmbiguous.
func (m *Matcher) Mask(dst []uint64) error {
	c := m.g.c
	if len(dst) != c.words {
		return fmt.Errorf("%w: %d words, want %d for %d tokens", ErrMaskSize, len(dst), c.words, len(c.tokens))
	}
	var all bool
	if m.fresh && len(c.vocab.First) > 0 {
		o := m.g.opening()
		all = o.all
		copy(dst, o.mask)
	} else {
		clear(dst)
		all = m.fill(dst)
	}
	if !all {
		return fmt.Errorf("mask: %w", ErrAmbiguous)
	}
	if m.canEnd {
		for _, id := range c.vocab.EOS {
			dst[id/64] |= 1 << (id % 64)
		}
		return nil
	}
	for _, w := range dst {
		if w != 0 {
			return nil
		}
	}
	return ErrNoToken
}

// Bounds on the cost of making masks and reading tokens, in steps of some 50 ns. A
// sequence begins with credit for a second, and each token adds the cost of two parts of
// masks with a large vocabulary. So a sequence cannot delay others for long: a grammar
// that costs more is too ambiguous. Compiled grammars have been tested within the same
// bounds, see probe.
const (
	creditStart = 16_000_000
	creditToken = 1_000_000
	maskBudget  = 8_000_000 // of one mask
)

// spend subtracts a cost from the credit and reports whether there was enough.
func (m *Matcher) spend(cost int) bool {
	m.credit -= cost
	return m.credit >= 0
}

// fill adds the tokens that the items can read. It reports whether it found all of them.
func (m *Matcher) fill(dst []uint64) bool {
	budget := min(maskBudget, m.credit)
	m.budget = budget
	defer func() { m.credit -= budget - m.budget }()
	m.seen = m.seen[:0]
	clear(m.visited)
	all := true
	for _, it := range m.items {
		if m.budget < 0 {
			return false
		}
		f := m.g.masks.state(it.State, &m.budget)
		m.budget -= f.tokens.cost()
		f.tokens.or(dst)
		all = m.climb(dst, f.ends, it.Frame) && all && !f.partial
	}
	return all
}

// climb adds the tokens whose first part is read by a frame's rule, which can end at the
// given places, and whose rest is read by the rule's callers.
func (m *Matcher) climb(dst []uint64, from *ends, frame *pda.Frame) bool {
	if from == nil {
		return true
	}
	fresh, room := m.visit(visit{from, frame})
	if !fresh || m.budget < 0 {
		return room && m.budget >= 0
	}
	all := true
	for _, c := range frame.Callers() {
		f := m.g.masks.ended(from, c.State, &m.budget)
		m.budget -= f.tokens.cost()
		f.tokens.or(dst)
		all = m.climb(dst, f.ends, c.Frame) && all && !f.partial
	}
	return all
}

// visit reports whether v is new, and whether there is room for it, because a very
// ambiguous grammar can reach the bound.
func (m *Matcher) visit(v visit) (fresh, room bool) {
	const long, most = 32, 20_000
	if len(m.seen) < long {
		if slices.Contains(m.seen, v) {
			return false, true
		}
		m.seen = append(m.seen, v)
		return true, true
	}
	if m.visited == nil {
		m.visited = map[visit]struct{}{}
	}
	if len(m.visited) == 0 {
		for _, s := range m.seen {
			m.visited[s] = struct{}{}
		}
	}
	if _, ok := m.visited[v]; ok {
		return false, true
	}
	if len(m.visited) >= most {
		return false, false
	}
	m.visited[v] = struct{}{}
	return true, true
}

// Accept reads a token. It returns ErrRejected or ErrAmbiguous, which leave the matcher
// unchanged. At the end it accepts only end-of-sequence ids.
func (m *Matcher) Accept(token uint32) error {
	c := m.g.c
	if slices.Contains(c.vocab.EOS, token) {
		if !m.canEnd {
			return fmt.Errorf("end of sequence: %w", rejected(token))
		}
		m.items, m.ended, m.fresh = nil, true, false
		return nil
	}
	if m.ended || !c.usable(token) {
		return rejected(token)
	}
	text := c.tokens[token]
	if m.fresh {
		if first, ok := c.vocab.First[token]; ok {
			text = first
		}
	}
	m.scratch.Spend()
	canEnd, fits, err := m.read(text)
	if !m.spend(m.scratch.Spent()) && err == nil {
		err = ErrAmbiguous
	}
	if err != nil {
		return fmt.Errorf("token %d: %w", token, err)
	}
	m.credit = min(m.credit+creditToken, creditStart)
	if !fits {
		return rejected(token)
	}
	m.fresh = false
	if len(text) > 0 {
		m.items, m.canEnd = slices.Clone(m.now), canEnd
	}
	return nil
}

// read runs the items over text and stores the resulting items in m.now.
func (m *Matcher) read(text []byte) (canEnd, fits bool, err error) {
	items, canEnd := m.items, m.canEnd
	for _, b := range text {
		out, ended, ok := m.g.a.Step(&m.scratch, m.next[:0], items, b)
		m.next, m.now = m.now, out
		if !ok {
			return false, false, ErrAmbiguous
		}
		if len(out) == 0 && !ended {
			return false, false, nil
		}
		items, canEnd = out, ended
	}
	return canEnd, true, nil
}

func (m *Matcher) reads(text []byte) bool {
	_, fits, err := m.read(text)
	return fits && err == nil
}

// Replay reads the tokens of a sequence that began in another matcher. It stops at the
// first token that does not fit; the error names it.
func (m *Matcher) Replay(tokens []uint32) error {
	for i, token := range tokens {
		if err := m.Accept(token); err != nil {
			return fmt.Errorf("replay %d of %d: %w", i+1, len(tokens), err)
		}
	}
	return nil
}

// CanEnd reports whether the text is complete. It may still be possible to continue.
func (m *Matcher) CanEnd() bool { return m.canEnd }

// Done reports whether only the end of the sequence can follow.
func (m *Matcher) Done() bool { return m.canEnd && len(m.items) == 0 }

// Shortest returns the fewest bytes that must still follow until the text is complete, so
// that a caller can tell in time when a token limit gets tight. The first call for a
// grammar takes as long as compiling it.
func (m *Matcher) Shortest() int {
	if m.canEnd {
		return 0
	}
	return m.g.a.Shortest(m.items)
}

// Clone returns an independent matcher in the same state. It costs a few hundred bytes
// however long the text is, so clones can also serve for going back.
func (m *Matcher) Clone() *Matcher {
	return &Matcher{g: m.g, items: m.items, canEnd: m.canEnd, fresh: m.fresh, ended: m.ended, credit: m.credit}
}

// maxJump bounds the text that JumpForward returns, in bytes.
const maxJump = 1024

// JumpForward returns, without reading them, the bytes that must follow in any case. They
// need not be whole characters, and a token may reach beyond them.
func (m *Matcher) JumpForward() []byte {
	var out []byte
	probe := m.Clone()
	for len(out) < maxJump && !probe.canEnd {
		b, ok := probe.forced()
		if !ok {
			break
		}
		canEnd, fits, err := probe.read([]byte{b})
		if err != nil || !fits {
			break
		}
		out = append(out, b)
		probe.items, probe.canEnd = slices.Clone(probe.now), canEnd
	}
	return out
}

// forced returns the byte, if all items read only that one.
func (m *Matcher) forced() (b byte, ok bool) {
	for i, it := range m.items {
		only, one := m.g.a.Only(it.State)
		if !one || i > 0 && only != b {
			return 0, false
		}
		b = only
	}
	return b, len(m.items) > 0
}
