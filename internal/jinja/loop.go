package jinja

func (s *forStmt) exec(r *run, f *frame) (signal, error) {
	v, err := r.eval(s.iter, f)
	if err != nil {
		return sigNone, err
	}
	if !s.recursive {
		return r.loop(s, f, v, 0)
	}
	text, _, err := r.capture(func() (signal, error) { return r.loop(s, f, v, 0) })
	if err != nil {
		return sigNone, err
	}
	return sigNone, r.write(text)
}

// loop runs a for statement over v, at a depth of recursion.
func (r *run) loop(s *forStmt, f *frame, v Value, depth int) (signal, error) {
	next, err := r.iter(v)
	if err != nil {
		return sigNone, err
	}
	lc := &loopContext{index0: -1, depth0: depth, next: next, size: -1}
	if s.test != nil {
		if lc.next, err = r.filtered(s, f, next); err != nil {
			return sigNone, err
		}
	} else if n, ok := sizeOf(v); ok {
		lc.size = n
	}
	if s.recursive {
		lc.again = func(v Value) (string, error) {
			if err := r.enterCall(); err != nil {
				return "", err
			}
			defer r.leaveCall()
			text, _, err := r.capture(func() (signal, error) { return r.loop(s, f, v, depth+1) })
			return text, err
		}
	}
	in, err := r.newFrame(f, s.bodyScope)
	if err != nil {
		return sigNone, err
	}
	sig := sigNone
	for sig != sigBreak {
		item, ok, err := lc.advance()
		if err != nil {
			return sigNone, err
		}
		if !ok {
			break
		}
		if err := r.step(1); err != nil {
			return sigNone, err
		}
		if lc.index0 > 0 {
			for i := range in.slots {
				in.slots[i] = missing
			}
			r.load(in, s.bodyScope)
		}
		in.slots[s.loopSlot] = lc
		if err := r.assign(s.target, item, in); err != nil {
			return sigNone, err
		}
		if sig, err = r.body(s.body, in); err != nil {
			return sigNone, err
		}
		if sig == sigNone {
			lc.complete = true
		}
	}
	if lc.complete || s.orElse == nil {
		return sigNone, nil
	}
	// As in the original, a loop none of whose rounds reached the end of its
	// body counts as empty.
	other, err := r.newFrame(f, s.elseScope)
	if err != nil {
		return sigNone, err
	}
	return r.body(s.orElse, other)
}

// filtered drops the items that fail the loop's condition. It looks at each item
// only when the loop asks for it, so that a condition sees what earlier rounds
// did to a namespace.
func (r *run) filtered(s *forStmt, f *frame, next iterator) (iterator, error) {
	in, err := r.newFrame(f, s.testScope)
	if err != nil {
		return nil, err
	}
	return func() (Value, bool, error) {
		for {
			item, ok, err := next()
			if !ok || err != nil {
				return nil, false, err
			}
			if err := r.step(1); err != nil {
				return nil, false, err
			}
			if err := r.assign(s.testTarget, item, in); err != nil {
				return nil, false, err
			}
			v, err := r.eval(s.test, in)
			if err != nil {
				return nil, false, err
			}
			keep, err := r.truth(v)
			if err != nil {
				return nil, false, err
			}
			if keep {
				return item, true, nil
			}
		}
	}, nil
}

// loopContext is the variable loop. Like the original it reads ahead only when
// asked for the length or the next item.
type loopContext struct {
	next     iterator
	index0   int
	depth0   int
	size     int     // -1 while unknown
	ahead    []Value // items read ahead
	ended    bool    // next has no more
	before   Value
	current  Value
	changed  []Value // arguments of the last call of changed, nil before
	again    func(Value) (string, error)
	complete bool // one round reached the end of the body
}

func (l *loopContext) advance() (Value, bool, error) {
	v, ok, err := l.peek()
	if !ok || err != nil {
		return nil, false, err
	}
	l.ahead = l.ahead[1:]
	l.index0++
	l.before, l.current = l.current, v
	return v, true, nil
}

// peek returns the next item without taking it.
func (l *loopContext) peek() (Value, bool, error) {
	if len(l.ahead) == 0 {
		if l.ended {
			return nil, false, nil
		}
		v, ok, err := l.next()
		if err != nil {
			return nil, false, err
		}
		if !ok {
			l.ended = true
			return nil, false, nil
		}
		l.ahead = append(l.ahead, v)
	}
	return l.ahead[0], true, nil
}

func (l *loopContext) length(r *run) (int, error) {
	if l.size >= 0 {
		return l.size, nil
	}
	for !l.ended {
		v, ok, err := l.next()
		if err != nil {
			return 0, err
		}
		if !ok {
			l.ended = true
			break
		}
		if err := r.allocItems(1); err != nil {
			return 0, err
		}
		l.ahead = append(l.ahead, v)
	}
	l.size = l.index0 + 1 + len(l.ahead)
	return l.size, nil
}

func (l *loopContext) recurse(r *run, a args) (Value, error) {
	b, err := signature{params: []string{"iterable"}, min: 1}.bind("loop", a)
	if err != nil {
		return nil, err
	}
	if l.again == nil {
		return nil, typeErrorf("The loop must have the 'recursive' marker to be called recursively.")
	}
	return l.again(b[0])
}

// attr returns an attribute of the loop and whether it has it.
func (l *loopContext) attr(r *run, name string) (Value, bool, error) {
	switch name {
	case "index0":
		return int64(l.index0), true, nil
	case "index":
		return int64(l.index0 + 1), true, nil
	case "first":
		return l.index0 == 0, true, nil
	case "last":
		_, more, err := l.peek()
		return !more, true, err
	case "length":
		n, err := l.length(r)
		return int64(n), true, err
	case "revindex":
		n, err := l.length(r)
		return int64(n - l.index0), true, err
	case "revindex0":
		n, err := l.length(r)
		return int64(n - l.index0 - 1), true, err
	case "depth":
		return int64(l.depth0 + 1), true, nil
	case "depth0":
		return int64(l.depth0), true, nil
	case "previtem":
		if l.index0 == 0 {
			return &undefined{hint: "there is no previous item"}, true, nil
		}
		return l.before, true, nil
	case "nextitem":
		v, more, err := l.peek()
		if !more {
			return &undefined{hint: "there is no next item"}, true, err
		}
		return v, true, err
	case "cycle":
		return method("cycle", l.cycle), true, nil
	case "changed":
		return method("changed", l.isChanged), true, nil
	}
	return nil, false, nil
}

func (l *loopContext) cycle(_ *run, a args) (Value, error) {
	if len(a.pos) == 0 {
		return nil, typeErrorf("no items for cycling given")
	}
	return a.pos[l.index0%len(a.pos)], nil
}

func (l *loopContext) isChanged(r *run, a args) (Value, error) {
	if l.changed != nil {
		same, err := r.equal(&Tuple{items: l.changed}, &Tuple{items: a.pos})
		if err != nil || same {
			return false, err
		}
	}
	l.changed = append([]Value{}, a.pos...)
	return true, nil
}
