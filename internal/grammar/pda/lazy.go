package pda

import "slices"

// Lazy steps through an automaton and remembers how: a set of items that was reached
// before costs no more than a look at a table. Sets that come again are what makes
// ambiguous grammars affordable, of which every step looks at hundreds of items. It
// belongs to one goroutine; the zero value is ready after Reset.
type Lazy struct {
	a     *Automaton
	s     *Scratch
	sets  []lazySet
	index map[uint64][]int32 // by the hash of the items
	steps int                // in the tables of all sets
	buf   []Item
}

// lazySet is a set of items, in the order in which they were found.
type lazySet struct {
	items []Item
	next  []lazyStep // by class of bytes; nil before the first step
	with  int32      // the set joined with it last, plus one
	both  int32      // the set of both
}

// lazyStep is the target of a step. known is false until the step was taken once.
type lazyStep struct {
	to                int32 // -1: no items are left
	known, ended, bad bool
}

// lazyEntries bounds what a Lazy remembers, in steps and items: some megabytes. Beyond
// that it steps as the automaton does.
const lazyEntries = 1 << 18

// Place is a set of items on the way of a Lazy. It holds until the next Reset.
type Place struct {
	items []Item
	set   int32 // -1 for one that is not remembered
}

// Items returns the items of the place; callers must not change them.
func (p *Place) Items() []Item { return p.items }

// Room returns the memory of the items if the place has it for itself, else spare.
func (p *Place) Room(spare []Item) []Item {
	if p.set < 0 {
		return p.items
	}
	return spare
}

// Reset makes it ready for walks through a, whose cost s counts.
func (l *Lazy) Reset(a *Automaton, s *Scratch) {
	l.a, l.s = a, s
	clear(l.sets)
	l.sets, l.steps = l.sets[:0], 0
	clear(l.index)
}

// At makes a place of items.
func (l *Lazy) At(items []Item) Place { return Place{slices.Clone(items), -1} }

// Step goes on from p over b. room is memory for the items of the new place, used if
// they are not remembered. See Automaton.Step for ended and ok.
func (l *Lazy) Step(p *Place, b byte, room []Item) (to Place, ended, ok bool) {
	if len(p.items) == 1 && l.a.flags[p.items[0].State] == reads {
		if to := l.a.table[int(p.items[0].State)*l.a.classes+int(l.a.class[b])]; to == none || to >= 0 && l.a.flags[to] == reads {
			out, ended, ok := l.a.Step(l.s, room, p.items, b) // that costs next to nothing
			return Place{out, -1}, ended, ok
		}
	}
	if l.known(p) < 0 {
		out, ended, ok := l.a.Step(l.s, room, p.items, b)
		return Place{out, -1}, ended, ok
	}
	if l.sets[p.set].next == nil {
		l.sets[p.set].next = make([]lazyStep, l.a.classes)
		l.steps += l.a.classes
	}
	class := l.a.class[b]
	if st := l.sets[p.set].next[class]; st.known {
		if st.to < 0 {
			return Place{room, -1}, st.ended, !st.bad
		}
		return Place{l.sets[st.to].items, st.to}, st.ended, !st.bad
	}
	out, ended, ok := l.a.Step(l.s, l.buf[:0], p.items, b)
	l.buf = out
	st := lazyStep{-1, true, ended, !ok}
	if len(out) > 0 {
		st.to = l.intern(out)
	}
	if st.to < 0 && len(out) > 0 {
		return Place{append(room, out...), -1}, ended, ok
	}
	l.sets[p.set].next[class] = st
	if st.to < 0 {
		return Place{room, -1}, ended, ok
	}
	return Place{l.sets[st.to].items, st.to}, ended, ok
}

// Join makes one place of two, which keep to the bounds of steps as far as each of them
// does.
func (l *Lazy) Join(p, more *Place) Place {
	switch {
	case len(p.items) == 0:
		return *more
	case len(more.items) == 0:
		return *p
	}
	if p.set, more.set = l.known(p), l.known(more); p.set == more.set && p.set >= 0 {
		return *p
	}
	if p.set >= 0 && more.set >= 0 {
		if s := &l.sets[p.set]; s.with == more.set+1 {
			return Place{l.sets[s.both].items, s.both}
		}
	}
	l.s.reset()
	for _, it := range p.items {
		l.s.add(it)
	}
	for _, it := range more.items {
		l.s.add(it)
	}
	l.buf = append(l.buf[:0], l.s.work...)
	n := l.intern(l.buf)
	if n < 0 {
		return Place{slices.Clone(l.buf), -1}
	}
	if p.set >= 0 && more.set >= 0 {
		l.sets[p.set].with, l.sets[p.set].both = more.set+1, n
	}
	return Place{l.sets[n].items, n}
}

// known is the number of a place's set, if there is room for it.
func (l *Lazy) known(p *Place) int32 {
	if p.set < 0 {
		if p.set = l.intern(p.items); p.set >= 0 {
			p.items = l.sets[p.set].items
		}
	}
	return p.set
}

// intern returns the number of a set of items, -1 if there is no room for it.
func (l *Lazy) intern(items []Item) int32 {
	h := uint64(len(items))
	for _, it := range items {
		h = (h ^ uint64(it.State)) * 0x9e3779b97f4a7c15
		h = (h ^ h>>29 ^ uint64(it.Frame.id)) * 0xbf58476d1ce4e5b9
	}
	for _, n := range l.index[h] {
		if slices.Equal(l.sets[n].items, items) {
			return n
		}
	}
	if l.steps += len(items); l.steps > lazyEntries {
		return -1
	}
	if l.index == nil {
		l.index = map[uint64][]int32{}
	}
	n := int32(len(l.sets))
	l.sets = append(l.sets, lazySet{items: slices.Clone(items)})
	l.index[h] = append(l.index[h], n)
	return n
}
