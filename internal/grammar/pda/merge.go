package pda

// merger finds frames that a step need not have made: a frame says what may come after
// its rule, so one of the same rule whose callers are the same serves as well, wherever
// in the text it was made. Without that, a grammar of which every part can be empty or
// begin anywhere has a frame for every position of the text, each of them with items of
// its own.
type merger struct {
	olds   []*Frame            // reached from the items before the step
	known  map[*Frame]struct{} // olds
	frames []made
	place  map[*Frame]int32 // in frames, if there are many
	stack  []int32          // of the search for cycles
	index  int32
	hit    []bool // of the callers of the frame compared with
	found  bool
}

// made is a frame of this step, and the older one that is taken for it, if any. Rules
// that call themselves at once have frames among their own callers: first, low and
// waiting are Tarjan's, to find those that depend on each other.
type made struct {
	frame, old *Frame
	first, low int32
	waiting    bool
}

// Bounds of a search: what is not found because of them is not merged.
const (
	mergeFrames  = 256 // older frames looked at
	mergeCallers = 512 // callers of a frame that is compared
)

// merge replaces frames of this step by equal ones that the items before it reach, and
// removes items that thereby occur twice.
func (s *Scratch) merge(dst []Item, begin int, before []Item) []Item {
	m := &s.same
	s.reach(before)
	m.frames, m.stack, m.index, m.found = m.frames[:0], m.stack[:0], 0, false
	clear(m.place)
	for i, f := range s.open {
		m.frames = append(m.frames, made{frame: f})
		if len(s.open) > long {
			if m.place == nil {
				m.place = map[*Frame]int32{}
			}
			m.place[f] = int32(i)
		}
	}
	for i := range m.frames {
		if m.frames[i].first == 0 {
			s.resolve(int32(i))
		}
	}
	if !m.found {
		return dst
	}
	for _, f := range m.frames {
		if f.old == nil {
			f.frame.callers = m.replace(f.frame.callers, 0)
		}
	}
	return m.replace(dst, begin)
}

// reach lists the frames that the items lead to, the nearest first.
func (s *Scratch) reach(items []Item) {
	m := &s.same
	m.olds = m.olds[:0]
	if m.known == nil {
		m.known = map[*Frame]struct{}{}
	}
	clear(m.known)
	add := func(f *Frame) {
		if _, ok := m.known[f]; !ok && len(m.olds) < mergeFrames {
			m.known[f] = struct{}{}
			m.olds = append(m.olds, f)
		}
	}
	for _, it := range items {
		add(it.Frame)
	}
	for i := 0; i < len(m.olds) && len(m.olds) < mergeFrames; i++ {
		for _, c := range m.olds[i].callers {
			add(c.Frame)
		}
	}
	s.adds += len(m.olds)
}

// find is the place of a frame of this step, -1 for an older one.
func (m *merger) find(f *Frame) int32 {
	if len(m.frames) > long {
		if i, ok := m.place[f]; ok {
			return i
		}
		return -1
	}
	for i := range m.frames {
		if m.frames[i].frame == f {
			return int32(i)
		}
	}
	return -1
}

// resolve looks for an older frame in place of frame i, once that is done for the frames
// among its callers. Frames that depend on each other are done together.
func (s *Scratch) resolve(i int32) {
	m := &s.same
	m.index++
	f := &m.frames[i]
	f.first, f.low, f.waiting = m.index, m.index, true
	begin := len(m.stack)
	m.stack = append(m.stack, i)
	s.adds += len(f.frame.callers)
	for _, c := range f.frame.callers {
		at := m.find(c.Frame)
		if at < 0 {
			continue
		}
		if m.frames[at].first == 0 {
			s.resolve(at)
			f.low = min(f.low, m.frames[at].low)
		} else if m.frames[at].waiting {
			f.low = min(f.low, m.frames[at].first)
		}
	}
	if f.low < f.first {
		return
	}
	group := m.stack[begin:]
	m.stack = m.stack[:begin]
	for _, g := range group {
		m.frames[g].waiting = false
	}
	for _, old := range m.olds {
		if old.rule == f.frame.rule && len(old.callers) > 0 && s.serves(group, old) {
			m.found = true
			return
		}
	}
	for _, g := range group {
		m.frames[g].old = nil
	}
}

// serves reports whether the frames of a group can be replaced by those that were made
// in the same step as old, which stands for the first: it assumes so and looks for what
// contradicts.
func (s *Scratch) serves(group []int32, old *Frame) bool {
	m := &s.same
	for _, g := range group {
		f := &m.frames[g]
		f.old = nil
		if f.frame.rule == old.rule {
			f.old = old
			continue
		}
		for _, o := range m.olds {
			if o.step == old.step && o.rule == f.frame.rule {
				f.old = o
				break
			}
		}
		if f.old == nil {
			return false
		}
	}
	for _, g := range group {
		if !s.equal(m.frames[g].frame, m.frames[g].old) {
			return false
		}
	}
	return true
}

// instead is the frame that is taken for f.
func (m *merger) instead(f *Frame) *Frame {
	if at := m.find(f); at >= 0 && m.frames[at].old != nil {
		return m.frames[at].old
	}
	return f
}

// equal reports whether two frames have the same callers.
func (s *Scratch) equal(f, old *Frame) bool {
	m := &s.same
	if len(old.callers) > len(f.callers) || len(f.callers) > mergeCallers {
		return false
	}
	s.adds += 1 + len(f.callers)*len(old.callers)/16
	m.hit = append(m.hit[:0], make([]bool, len(old.callers))...)
	missing := len(old.callers)
	for _, c := range f.callers {
		c.Frame = m.instead(c.Frame)
		at := -1
		for i, o := range old.callers {
			if o == c {
				at = i
				break
			}
		}
		if at < 0 {
			return false
		}
		if !m.hit[at] {
			m.hit[at] = true
			missing--
		}
	}
	return missing == 0
}

// replace puts older frames into the items from begin on, in place, each of which then
// is there once.
func (m *merger) replace(items []Item, begin int) []Item {
	out := items[:begin]
	var seen map[Item]struct{}
	if len(items)-begin > long {
		seen = make(map[Item]struct{}, len(items)-begin)
	}
next:
	for _, it := range items[begin:] {
		it.Frame = m.instead(it.Frame)
		if seen != nil {
			if _, ok := seen[it]; ok {
				continue
			}
			seen[it] = struct{}{}
		} else {
			for _, o := range out[begin:] {
				if o == it {
					continue next
				}
			}
		}
		out = append(out, it)
	}
	return out
}
