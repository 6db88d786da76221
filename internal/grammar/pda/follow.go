package pda

// ByteSet is a set of bytes.
type ByteSet [4]uint64

// Has reports whether b is in the set.
func (s *ByteSet) Has(b byte) bool { return s[b>>6]>>(b&63)&1 == 1 }

func (s *ByteSet) add(b byte) { s[b>>6] |= 1 << (b & 63) }

// union adds a set and reports whether that changed anything.
func (s *ByteSet) union(o *ByteSet) bool {
	old := *s
	for i := range s {
		s[i] |= o[i]
	}
	return *s != old
}

// Follow is the set of bytes that can come after the end of the rule that a state
// belongs to, in any text.
func (a *Automaton) Follow(state int32) *ByteSet { return &a.follow[a.ruleOf[state]] }

// findFollow computes the sets as textbooks do, from the bytes that can come first
// at each state.
func (a *Automaton) findFollow() {
	first := make([]ByteSet, len(a.flags))
	empty := make([]bool, len(a.flags)) // the rule can end here without another byte
	for s := range first {
		row := a.table[s*a.classes:][:a.classes]
		for b, class := range a.class {
			if row[class] != none {
				first[s].add(byte(b))
			}
		}
		empty[s] = a.flags[s]&accepts != 0
	}
	calls := func(s int) []nfaCall { return a.calls[a.callStart[s]:a.callStart[s+1]] }
	// Rules have their callers before them, mostly: what flows from the called to the
	// callers settles fast from the back, what flows down from the front.
	n := len(first)
	settled := untilStable(n, func(i int) (changed bool) {
		s := n - 1 - i
		for _, c := range calls(s) {
			r := a.rules[c.rule]
			changed = first[s].union(&first[r.start]) || changed
			if r.nullable {
				changed = first[s].union(&first[c.to]) || changed
				if empty[c.to] && !empty[s] {
					empty[s], changed = true, true
				}
			}
		}
		return changed
	})
	a.follow = make([]ByteSet, len(a.rules))
	settled = settled && untilStable(n, func(s int) (changed bool) {
		for _, c := range calls(s) {
			changed = a.follow[c.rule].union(&first[c.to]) || changed
			if empty[c.to] {
				changed = a.follow[c.rule].union(&a.follow[a.ruleOf[s]]) || changed
			}
		}
		return changed
	})
	if !settled { // what is too deep to know may be anything
		for i := range a.follow {
			a.follow[i] = ByteSet{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
		}
	}
}

// untilStable visits 0 to n-1 over and over until nothing changes, and reports
// whether it came to that within bounds.
func untilStable(n int, visit func(int) (changed bool)) bool {
	const most = 20_000_000
	for work := 0; work < most; work += n {
		changed := false
		for i := range n {
			changed = visit(i) || changed
		}
		if !changed {
			return true
		}
	}
	return false
}
