package pda

// Item is one way to read the text so far: the state of the rule being read and the
// frame that says where the rule was called.
type Item struct {
	State int32
	Frame *Frame
}

// Frame is a rule called at one position of the text. The frame of the root has no
// callers.
type Frame struct {
	callers []Item
	one     [1]Item
	rule    int32
	id      uint32 // differs among the frames of one Scratch; 0 for those made elsewhere
	step    uint32 // in which it was made
}

// Callers are the items that go on when the frame's rule ends. They must not be
// changed.
func (f *Frame) Callers() []Item { return f.callers }

// Bounds of one step. Only a grammar whose ways to read a text grow with the text
// comes near them.
const (
	maxItems = 4096
	maxAdds  = 1 << 15 // attempts to add an item or a caller
)

// Scratch is memory for steps. It belongs to one goroutine; the zero value is ready.
// The maps take over from linear search where a list is long.
type Scratch struct {
	work []Item
	seen map[Item]struct{} // of work
	open []*Frame          // made in this step
	byID map[int32]*Frame  // of open, by rule
	owns map[*Frame]struct{}
	dup  map[frameCaller]struct{} // of the callers of frames in open
	adds int                      // in this step
	sum  int                      // in steps before it
	over bool                     // a bound was reached
	ids  uint32                   // of the frames made so far
	step uint32
	same merger
}

type frameCaller struct {
	frame  *Frame
	caller Item
}

const long = 24 // from here on maps beat linear search

// Start returns the items before the first byte and whether the empty text matches.
func (a *Automaton) Start(s *Scratch) (items []Item, ended bool) {
	items, ended, _ = a.Close(s, nil, Item{a.rules[0].start, &Frame{}})
	return items, ended
}

// Close appends to dst the items that read a byte next when the automaton stands at
// it, which need not read one itself. ended says that a frame without callers can
// end here. ok is false if there would be too many items: then dst lacks some.
func (a *Automaton) Close(s *Scratch, dst []Item, it Item) (out []Item, ended, ok bool) {
	s.reset()
	s.add(it)
	return a.close(s, dst, []Item{it})
}

// Step appends to dst the items after reading b; none means that b cannot follow,
// unless ended. See Close for ended and ok. dst must not share memory with items.
func (a *Automaton) Step(s *Scratch, dst, items []Item, b byte) (out []Item, ended, ok bool) {
	c := int(a.class[b])
	if len(items) == 1 {
		to := a.table[int(items[0].State)*a.classes+c]
		if to == none {
			return dst, false, true
		}
		if to >= 0 && a.flags[to] == reads {
			return append(dst, Item{to, items[0].Frame}), false, true
		}
	}
	s.reset()
	for _, it := range items {
		to := a.table[int(it.State)*a.classes+c]
		if to >= 0 {
			s.add(Item{to, it.Frame})
			continue
		}
		if to != none {
			for _, t := range a.targets[-2-to] {
				s.add(Item{t, it.Frame})
			}
		}
	}
	return a.close(s, dst, items)
}

// Spent counts what steps cost since the last call of Spend, except the steps that
// just replace one item by another.
func (s *Scratch) Spent() int { return s.sum + s.adds }

// Spend makes Spent begin at 0 again.
func (s *Scratch) Spend() { s.sum, s.adds = 0, 0 }

func (s *Scratch) reset() {
	s.sum += s.adds
	s.step++
	s.work, s.open, s.adds, s.over = s.work[:0], s.open[:0], 0, false
	clear(s.seen)
	clear(s.byID)
	clear(s.owns)
	clear(s.dup)
}

// add puts an item on the work list once.
func (s *Scratch) add(it Item) {
	s.adds++
	if len(s.work) < long {
		for _, w := range s.work {
			if w == it {
				return
			}
		}
		s.work = append(s.work, it)
		return
	}
	if s.seen == nil {
		s.seen = make(map[Item]struct{}, 2*long)
	}
	if len(s.seen) == 0 {
		for _, w := range s.work {
			s.seen[w] = struct{}{}
		}
	}
	if _, ok := s.seen[it]; !ok {
		s.seen[it] = struct{}{}
		s.work = append(s.work, it)
	}
}

// close follows calls and ends of rules from the work list, which was made from the
// items before.
func (a *Automaton) close(s *Scratch, dst, before []Item) (out []Item, ended, ok bool) {
	begin := len(dst)
	for i := 0; i < len(s.work); i++ {
		if i >= maxItems || s.adds > maxAdds || s.over {
			return dst, ended, false
		}
		it := s.work[i]
		flags := a.flags[it.State]
		if flags&reads != 0 {
			dst = append(dst, it)
		}
		if flags == reads {
			continue
		}
		own := s.made(it.Frame)
		// A rule that ends where it began is empty: its callers went on when they
		// called it, for the frame may still get callers.
		if flags&accepts != 0 && !own {
			if len(it.Frame.callers) == 0 {
				ended = true
			}
			for _, c := range it.Frame.callers {
				s.add(c)
			}
		}
		for _, c := range a.calls[a.callStart[it.State]:a.callStart[it.State+1]] {
			a.call(s, c, it.Frame, own)
		}
	}
	if s.over { // the last items reached the bound
		return dst, ended, false
	}
	if len(s.open) > 0 {
		dst = s.merge(dst, begin, before)
	}
	return dst, ended, true
}

// call adds a caller to the rule's frame of this position.
func (a *Automaton) call(s *Scratch, c nfaCall, from *Frame, own bool) {
	r := a.rules[c.rule]
	f := s.frame(c.rule)
	if f == nil {
		s.ids++
		f = &Frame{rule: c.rule, id: s.ids, step: s.step}
		f.callers = f.one[:0]
		s.opened(f)
		s.add(Item{r.start, f})
	}
	if r.nullable {
		s.add(Item{c.to, from})
	}
	// In tail position the called rule may as well return to where its caller
	// would. That needs callers that are complete, hence no frame of this step.
	if a.flags[c.to] == accepts && !own && len(from.callers) > 0 {
		for _, it := range from.callers {
			s.addCaller(f, it)
		}
		return
	}
	s.addCaller(f, Item{c.to, from})
}

// frame returns the frame of a rule at this position, if there is one.
func (s *Scratch) frame(rule int32) *Frame {
	if len(s.open) > long {
		return s.byID[rule]
	}
	for _, f := range s.open {
		if f.rule == rule {
			return f
		}
	}
	return nil
}

// made reports whether a frame is of this position.
func (s *Scratch) made(f *Frame) bool {
	if len(s.open) > long {
		_, ok := s.owns[f]
		return ok
	}
	for _, o := range s.open {
		if o == f {
			return true
		}
	}
	return false
}

func (s *Scratch) opened(f *Frame) {
	s.open = append(s.open, f)
	if len(s.open) <= long {
		return
	}
	if s.byID == nil {
		s.byID, s.owns = map[int32]*Frame{}, map[*Frame]struct{}{}
	}
	if len(s.byID) == 0 {
		for _, o := range s.open {
			s.byID[o.rule], s.owns[o] = o, struct{}{}
		}
	}
	s.byID[f.rule], s.owns[f] = f, struct{}{}
}

func (s *Scratch) addCaller(f *Frame, it Item) {
	s.adds++
	if len(f.callers) <= long {
		for _, c := range f.callers {
			if c == it {
				return
			}
		}
	} else {
		if s.dup == nil {
			s.dup = map[frameCaller]struct{}{}
		}
		if _, ok := s.dup[frameCaller{f, f.callers[0]}]; !ok {
			for _, c := range f.callers {
				s.dup[frameCaller{f, c}] = struct{}{}
			}
		}
		key := frameCaller{f, it}
		if _, ok := s.dup[key]; ok {
			return
		}
		s.dup[key] = struct{}{}
	}
	if len(f.callers) >= maxItems {
		s.over = true
		return
	}
	f.callers = append(f.callers, it)
}
