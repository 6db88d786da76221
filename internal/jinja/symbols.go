package jinja

// loadKind says where a variable's value comes from when its frame is entered.
type loadKind uint8

const (
	loadParam     loadKind = iota // whoever enters the frame sets it
	loadUndefined                 // nothing, until it is assigned
	loadResolve                   // the render's variables
	loadAlias                     // the enclosing frame's variable of that name
)

// scope is the layout of a frame: how many variables it has and how they start.
type scope struct {
	slots int
	loads []load
}

type load struct {
	slot int
	kind loadKind
	name string
	from nameExpr // for aliases, as seen from the frame itself
}

// symbols collects the variables of one frame. A branch of an if statement has
// symbols of its own on top of base, which are merged when all branches are
// known.
//
// The rules are those of the original, with their surprises: a name that is
// assigned anywhere in a frame belongs to that frame, so an inner loop that runs
// before the assignment sees it undefined even if the caller passed a variable
// of that name.
type symbols struct {
	parent *symbols // enclosing frame
	base   *symbols // what a branch stands on
	refs   map[string]loadKind
	stores map[string]bool
	slots  map[string]int // after finish
}

func newSymbols(parent *symbols) *symbols {
	return &symbols{parent: parent, refs: map[string]loadKind{}, stores: map[string]bool{}}
}

func (s *symbols) branch() *symbols {
	b := newSymbols(s.parent)
	b.base = s
	return b
}

func (s *symbols) local(name string) bool {
	for ; s != nil; s = s.base {
		if _, ok := s.refs[name]; ok {
			return true
		}
	}
	return false
}

func (s *symbols) stored(name string) bool {
	for ; s != nil; s = s.base {
		if s.stores[name] {
			return true
		}
	}
	return false
}

// outer says whether an enclosing frame has the name.
func (s *symbols) outer(name string) bool {
	for p := s.parent; p != nil; p = p.parent {
		if p.local(name) {
			return true
		}
	}
	return false
}

func (s *symbols) load(name string) {
	if !s.local(name) && !s.outer(name) {
		s.refs[name] = loadResolve
	}
}

func (s *symbols) store(name string) {
	s.stores[name] = true
	if s.local(name) {
		return
	}
	s.refs[name] = loadUndefined
	if s.outer(name) {
		s.refs[name] = loadAlias
	}
}

func (s *symbols) param(name string) {
	s.stores[name] = true
	s.refs[name] = loadParam
}

func (s *symbols) expr(x expr) {
	if x != nil {
		eachName(x, func(n *nameExpr) { s.load(n.name) })
	}
}

func (s *symbols) target(t target) {
	if ns, ok := t.(*nsTarget); ok {
		s.load(ns.ns.name)
		return
	}
	eachTarget(t, func(n *nameExpr) { s.store(n.name) })
}

func (s *symbols) params(t target) {
	eachTarget(t, func(n *nameExpr) { s.param(n.name) })
}

// stmts collects what the statements of this frame read and assign; bodies with
// a frame of their own are left out.
func (s *symbols) stmts(body []stmt) {
	for _, st := range body {
		switch st := st.(type) {
		case *outputStmt:
			s.expr(st.x)
		case *forStmt:
			s.expr(st.iter)
		case *ifStmt:
			s.ifStmt(st)
		case *setStmt:
			s.expr(st.x)
			s.target(st.target)
		case *setBlockStmt:
			s.target(st.target)
		case *withStmt:
			for _, v := range st.values {
				s.expr(v)
			}
		case *macroStmt:
			s.store(st.target.name)
		case *callStmt:
			s.expr(st.call)
		case *filterStmt:
			s.expr(st.filter)
		}
	}
}

func (s *symbols) ifStmt(st *ifStmt) {
	s.expr(st.test)
	body, elifs, orElse := s.branch(), s.branch(), s.branch()
	body.stmts(st.body)
	for _, e := range st.elifs {
		elifs.ifStmt(e)
	}
	orElse.stmts(st.orElse)

	count := map[string]int{}
	for _, b := range []*symbols{body, elifs, orElse} {
		for name := range b.stores {
			if !s.stored(name) {
				count[name]++
			}
		}
	}
	for _, b := range []*symbols{body, elifs, orElse} {
		for name, kind := range b.refs {
			s.refs[name] = kind
		}
		for name := range b.stores {
			s.stores[name] = true
		}
	}
	for name, n := range count {
		if n == 3 {
			continue
		}
		s.refs[name] = loadResolve
		if s.outer(name) {
			s.refs[name] = loadAlias
		}
	}
}

// finish numbers the variables.
func (s *symbols) finish() *scope {
	sc := &scope{slots: len(s.refs)}
	s.slots = make(map[string]int, len(s.refs))
	for name, kind := range s.refs {
		slot := len(s.slots)
		s.slots[name] = slot
		if kind == loadParam {
			continue
		}
		l := load{slot: slot, kind: kind, name: name}
		if kind == loadAlias {
			l.from.name = name
			s.parent.bind(&l.from)
			l.from.hops++
		}
		sc.loads = append(sc.loads, l)
	}
	return sc
}

// bind resolves a name to the nearest frame that has it. Analysis has put every
// name into some frame.
func (s *symbols) bind(n *nameExpr) {
	hops := 0
	for f := s; f != nil; f = f.parent {
		if slot, ok := f.slots[n.name]; ok {
			n.hops, n.slot = hops, slot
			return
		}
		hops++
	}
	panic("jinja: name " + n.name + " was not analyzed")
}
