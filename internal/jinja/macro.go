package jinja

// macro is a macro with the frame it was defined in.
type macro struct {
	def  *macroDef
	home *frame
}

func (s *macroStmt) exec(_ *run, f *frame) (signal, error) {
	*f.slot(s.target) = &macro{def: s.def, home: f}
	return sigNone, nil
}

func (s *callStmt) exec(r *run, f *frame) (signal, error) {
	v, err := s.call.call(r, f, &macro{def: s.def, home: f})
	if err != nil {
		return sigNone, err
	}
	return sigNone, r.print(v)
}

// call binds arguments as the original does and returns the text of the body.
func (m *macro) call(r *run, a args) (Value, error) {
	if err := r.enterCall(); err != nil {
		return nil, err
	}
	defer r.leaveCall()
	f, err := r.newFrame(m.home, m.def.scope)
	if err != nil {
		return nil, err
	}
	given, kw, err := m.bind(a)
	if err != nil {
		return nil, err
	}
	for i, p := range m.def.params {
		f.slots[p.slot] = given[i]
	}
	m.implicit(f, a, kw)
	if err := m.defaults(r, f); err != nil {
		return nil, err
	}
	text, _, err := r.capture(func() (signal, error) { return r.body(m.def.body, f) })
	return text, err
}

// bind distributes arguments over the parameters and returns the keyword
// arguments that are left.
func (m *macro) bind(a args) ([]Value, []kwArg, error) {
	def := m.def
	given := make([]Value, len(def.params))
	n := copy(given, a.pos)
	for i := n; i < len(given); i++ {
		given[i] = a.named(def.params[i].name)
	}
	var rest []kwArg
	for _, kw := range a.kw {
		taken := kw.name == "caller" && def.callerSlot >= 0
		for _, p := range def.params[n:] {
			taken = taken || p.name == kw.name
		}
		if !taken {
			rest = append(rest, kw)
		}
	}
	if len(rest) > 0 && !def.usesKwargs {
		if rest[0].name == "caller" {
			return nil, nil, typeErrorf("macro %s was invoked with two values for the special caller argument. This is most likely a bug.", m.repr())
		}
		return nil, nil, typeErrorf("macro %s takes no keyword argument %s", m.repr(), quoteString(rest[0].name))
	}
	if len(a.pos) > len(def.params) && !def.usesVarargs {
		return nil, nil, typeErrorf("macro %s takes not more than %d argument(s)", m.repr(), len(def.params))
	}
	return given, rest, nil
}

// implicit sets caller, kwargs and varargs where the body reads them.
func (m *macro) implicit(f *frame, a args, rest []kwArg) {
	def := m.def
	if def.callerSlot >= 0 {
		caller := a.named("caller")
		if caller == missing || caller == nil {
			caller = &undefined{hint: "No caller defined", name: "caller"}
		}
		f.slots[def.callerSlot] = caller
	}
	if def.kwargsSlot >= 0 {
		d := NewDict()
		for _, kw := range rest {
			d.Set(kw.name, kw.val)
		}
		f.slots[def.kwargsSlot] = d
	}
	if def.varargsSlot >= 0 {
		var extra []Value
		if len(a.pos) > len(def.params) {
			extra = a.pos[len(def.params):]
		}
		f.slots[def.varargsSlot] = &Tuple{items: extra}
	}
}

// defaults fills absent parameters in order; a default sees the parameters
// before it.
func (m *macro) defaults(r *run, f *frame) error {
	def := m.def
	first := len(def.params) - len(def.defaults)
	for i, p := range def.params {
		if f.slots[p.slot] != missing {
			continue
		}
		if i < first {
			f.slots[p.slot] = &undefined{hint: "parameter " + quoteString(p.name) + " was not provided", name: p.name}
			continue
		}
		v, err := r.eval(def.defaults[i-first], f)
		if err != nil {
			return err
		}
		f.slots[p.slot] = v
	}
	return nil
}

func (m *macro) repr() string {
	if m.def.name == "" {
		return "None"
	}
	return quoteString(m.def.name)
}
