package jinja

import "sync"

// filterDef is a filter: its parameters after the value, and its code. A nil sig
// takes the arguments as they come.
type filterDef struct {
	sig *signature
	fn  func(r *run, v Value, b bound) (Value, error)
	raw func(r *run, v Value, a args) (Value, error)
}

func (d *filterDef) apply(r *run, name string, v Value, a args) (Value, error) {
	if d.raw != nil {
		return d.raw(r, v, a)
	}
	b, err := d.sig.bind(name, a)
	if err != nil {
		return nil, err
	}
	return d.fn(r, v, b)
}

// testDef is a test, the right side of is.
type testDef struct {
	sig *signature
	fn  func(r *run, v Value, b bound) (bool, error)
}

func (d *testDef) apply(r *run, name string, v Value, a args) (bool, error) {
	b, err := d.sig.bind(name, a)
	if err != nil {
		return false, err
	}
	return d.fn(r, v, b)
}

// library holds the builtin filters and tests. Some of them call others by name,
// so it is built on first use rather than by an initializer.
type library struct {
	filters map[string]*filterDef
	tests   map[string]*testDef
}

var builtins = sync.OnceValue(func() *library {
	l := &library{filters: map[string]*filterDef{}, tests: builtinTests()}
	for _, group := range []map[string]*filterDef{textFilters(), numberFilters(), sequenceFilters(), selectFilters()} {
		for name, def := range group {
			l.filters[name] = def
		}
	}
	for alias, name := range map[string]string{"d": "default", "e": "escape", "count": "length"} {
		l.filters[alias] = l.filters[name]
	}
	return l
})

// filter declares a filter with its parameters, the first need of them required.
func filter(fn func(r *run, v Value, b bound) (Value, error), need int, params ...string) *filterDef {
	return &filterDef{sig: &signature{params: params, min: need}, fn: fn}
}

// rawFilter declares a filter that reads its arguments itself.
func rawFilter(fn func(r *run, v Value, a args) (Value, error)) *filterDef {
	return &filterDef{raw: fn}
}

// callFilter applies a filter by name, as map does.
func (r *run) callFilter(name string, v Value, a args) (Value, error) {
	def := r.lib.filters[name]
	if def == nil {
		return nil, errorf(RuntimeError, "No filter named '%s'.", name)
	}
	return def.apply(r, name, v, a)
}

// callTest applies a test by name, as select does.
func (r *run) callTest(name string, v Value, a args) (bool, error) {
	def := r.lib.tests[name]
	if def == nil {
		return false, errorf(RuntimeError, "No test named '%s'.", name)
	}
	return def.apply(r, name, v, a)
}
