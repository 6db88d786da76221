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
	each := func(change func(s int, c nfaCall) bool) {
		for changed := true; changed; {
			changed = false
			for s := len(first) - 1; s >= 0; s-- {
				for _, c := range a.calls[a.callStart[s]:a.callStart[s+1]] {
					changed = change(s, c) || changed
				}
			}
		}
	}
	each(func(s int, c nfaCall) bool {
		r := a.rules[c.rule]
		changed := first[s].union(&first[r.start])
		if r.nullable {
			changed = first[s].union(&first[c.to]) || changed
			if empty[c.to] && !empty[s] {
				empty[s], changed = true, true
			}
		}
		return changed
	})
	a.follow = make([]ByteSet, len(a.rules))
	each(func(s int, c nfaCall) bool {
		changed := a.follow[c.rule].union(&first[c.to])
		if empty[c.to] {
			changed = a.follow[c.rule].union(&a.follow[a.ruleOf[s]]) || changed
		}
		return changed
	})
}
