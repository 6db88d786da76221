package schema

import "github.com/dynctl/dynctl/internal/grammar/pda"

// maxDigitStates bounds the states of one number.
const maxDigitStates = 20_000

// digitGraph reads a decimal that is not negative digit by digit and compares it
// with two bounds on the way.
type digitGraph struct {
	graph     *pda.Graph
	low, high bound
	m         *modulus
	fraction  int
	numbers   map[digitState]int
	queue     []digitState
	ends      bool // some number was complete
}

// digitState is the state after the digits read so far. While they equal those of a bound,
// that bound is tight.
type digitState struct {
	part      digitPart
	left      int // whole: digits to come before the point
	read      int // fraction: digits read after it
	low, high bool
	rest      int64 // modulo m.m
	first     bool  // whole: no digit was read
	single    bool  // whole: the only digit
}

type digitPart uint8

const (
	wholePart digitPart = iota
	pointPart           // after the point, before a digit
	fractionPart
)

// build reports whether there is any number.
func (g *digitGraph) build() bool {
	for n := len(g.low.d.int); n <= len(g.high.d.int); n++ {
		start := digitState{left: n, low: n == len(g.low.d.int), high: n == len(g.high.d.int), first: true, single: n == 1}
		g.graph.Edge(0, g.number(start), pda.Empty())
	}
	for i := 0; i < len(g.queue); i++ {
		if i > maxDigitStates {
			g.m.full = true
			return false
		}
		g.follow(g.queue[i])
	}
	return g.ends
}

func (g *digitGraph) number(s digitState) int {
	n, ok := g.numbers[s]
	if !ok {
		n = g.graph.State()
		g.numbers[s] = n
		g.queue = append(g.queue, s)
	}
	return n
}

// follow adds the edges out of a state.
func (g *digitGraph) follow(s digitState) {
	from := g.numbers[s]
	if s.part == wholePart && s.left == 0 || s.part == fractionPart {
		if g.complete(s) {
			g.graph.Accept(from)
			g.ends = true
		}
	}
	if s.part == wholePart && s.left == 0 {
		if g.fraction > 0 {
			s.part = pointPart
			g.graph.Edge(from, g.number(s), pda.Text("."))
		}
		return
	}
	if s.part != wholePart && s.read >= g.fraction {
		return
	}
	// Digits that lead to the same state share an edge.
	var sets [10]struct{ lo, hi, to int }
	n := 0
	for d := range 10 {
		next, ok := g.digit(s, d)
		if !ok {
			continue
		}
		to := g.number(next)
		if n > 0 && sets[n-1].to == to && sets[n-1].hi == d-1 {
			sets[n-1].hi = d
			continue
		}
		sets[n].lo, sets[n].hi, sets[n].to = d, d, to
		n++
	}
	for _, set := range sets[:n] {
		g.graph.Edge(from, set.to, char('0'+rune(set.lo), '0'+rune(set.hi)))
	}
}

// digit reads one digit.
func (g *digitGraph) digit(s digitState, d int) (digitState, bool) {
	if s.first && d == 0 && !s.single {
		return s, false
	}
	if s.low {
		b := g.at(g.low.d, s)
		if d < b {
			return s, false
		}
		s.low = d == b
	}
	if s.high {
		b := g.at(g.high.d, s)
		if d > b {
			return s, false
		}
		s.high = d == b
	}
	if s.part == wholePart {
		s.left--
	} else {
		s.part = fractionPart
		s.read++
	}
	s.first, s.single = false, false
	s.rest = (s.rest*10 + int64(d)) % g.m.m
	return s, true
}

// at is the digit of a bound that the next digit is compared with.
func (g *digitGraph) at(d decimal, s digitState) int {
	if s.part == wholePart {
		return int(d.int[len(d.int)-s.left] - '0')
	}
	if s.read < len(d.frac) {
		return int(d.frac[s.read] - '0')
	}
	return 0
}

// complete reports whether a number may end here, all further digits being zero.
func (g *digitGraph) complete(s digitState) bool {
	if s.low && (s.read < len(g.low.d.frac) || g.low.exclusive) {
		return false
	}
	if s.high && s.read >= len(g.high.d.frac) && g.high.exclusive {
		return false
	}
	rest := s.rest
	for range g.m.scale - s.read {
		rest = rest * 10 % g.m.m
	}
	return rest == 0
}
