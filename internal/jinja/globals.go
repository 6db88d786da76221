package jinja

// maxRange is the length of the longest range.
const maxRange = 100_000

// globals are the functions every template can call.
var globals = map[string]*function{
	"range":           {"range", "type", callRange},
	"dict":            {"dict", "type", callDict},
	"namespace":       {"namespace", "type", callNamespace},
	"joiner":          {"joiner", "type", newJoiner},
	"raise_exception": {"raise_exception", "function", raiseException},
	"strftime_now":    {"strftime_now", "function", strftimeNow},
}

func callRange(_ *run, a args) (Value, error) {
	b, err := posSig(1, "start", "stop", "step").bind("range", a)
	if err != nil {
		return nil, err
	}
	var n [3]int
	for i, v := range []Value{b[0], b.or(1, int64(0)), b.or(2, int64(1))} {
		if n[i], err = toIndex(v); err != nil {
			return nil, err
		}
	}
	v := &rangeValue{start: int64(n[0]), stop: int64(n[1]), step: int64(n[2])}
	if !b.has(1) {
		v.start, v.stop = 0, int64(n[0])
	}
	switch {
	case v.step == 0:
		return nil, valueErrorf("range() arg 3 must not be zero")
	case v.step > 0 && v.start < v.stop:
		v.n = int64((uint64(v.stop)-uint64(v.start)-1)/uint64(v.step)) + 1
	case v.step < 0 && v.start > v.stop:
		v.n = int64((uint64(v.start)-uint64(v.stop)-1)/uint64(-v.step)) + 1
	}
	if v.n > maxRange || v.n < 0 {
		return nil, errorf(OverflowError, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
	}
	return v, nil
}

// callDict makes a dictionary of a mapping or of pairs, and of keywords.
func callDict(r *run, a args) (Value, error) {
	b, err := posSig(0, "mapping").bind("dict", args{pos: a.pos})
	if err != nil {
		return nil, err
	}
	d := NewDict()
	switch src := b.or(0, nil).(type) {
	case *undefined:
		return nil, src.fail()
	case *Dict:
		if err := r.alloc(64 * src.Len()); err != nil {
			return nil, err
		}
		d = src.clone()
	default:
		if !b.has(0) {
			break
		}
		items, err := r.list(src)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			kv, err := r.unpack(item, 2)
			if err != nil {
				return nil, err
			}
			if err := r.setItem(d, kv[0], kv[1]); err != nil {
				return nil, err
			}
		}
	}
	for _, kw := range a.kw {
		if err := r.setItem(d, kw.name, kw.val); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func callNamespace(r *run, a args) (Value, error) {
	d, err := callDict(r, a)
	if err != nil {
		return nil, err
	}
	return &namespace{d.(*Dict)}, nil
}

func raiseException(r *run, a args) (Value, error) {
	b, err := signature{params: []string{"message"}, min: 1}.bind("raise_exception", a)
	if err != nil {
		return nil, err
	}
	msg, err := r.str(b[0])
	if err != nil {
		return nil, err
	}
	return nil, &RaiseError{Message: msg}
}

func strftimeNow(r *run, a args) (Value, error) {
	b, err := signature{params: []string{"format"}, min: 1}.bind("strftime_now", a)
	if err != nil {
		return nil, err
	}
	format, err := b.text(0, "")
	if err != nil {
		return nil, err
	}
	if err := r.alloc(16 * len(format)); err != nil {
		return nil, err
	}
	return strftime(r.now(), format)
}

// joiner returns nothing when called first, then its separator.
type joiner struct {
	sep  string
	used bool
}

func newJoiner(_ *run, a args) (Value, error) {
	b, err := signature{params: []string{"sep"}}.bind("joiner", a)
	if err != nil {
		return nil, err
	}
	sep, err := b.text(0, ", ")
	return &joiner{sep: sep}, err
}

func (j *joiner) call(a args) (Value, error) {
	if err := noArgs("joiner", a); err != nil {
		return nil, err
	}
	if !j.used {
		j.used = true
		return "", nil
	}
	return j.sep, nil
}
