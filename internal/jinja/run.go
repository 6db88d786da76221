package jinja

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// maxEval bounds the recursion of the interpreter itself.
const maxEval = 10_000

// checkEvery is the number of steps between checks of the context.
const checkEvery = 2048

// run is one rendering. It is used by one goroutine.
type run struct {
	ctx  context.Context
	tmpl *Template
	vars *Dict
	lib  *library
	now  func() time.Time
	lim  Limits

	out    *strings.Builder
	nested int // how many buffers stand above the output
	steps  int
	check  int // steps at the last look at the context
	used   int // bytes allocated so far
	depth  int // recursion of the interpreter
	calls  int // macro calls and recursive loops
}

// frame holds the variables of one running scope.
type frame struct {
	parent *frame
	slots  []Value
}

// signal says how a body ended.
type signal uint8

const (
	sigNone signal = iota
	sigBreak
	sigContinue
)

// step accounts for n units of work.
func (r *run) step(n int) error {
	r.steps += n
	if r.steps > r.lim.Steps {
		return limitErrorf("more than %d steps", r.lim.Steps)
	}
	if r.steps-r.check >= checkEvery {
		r.check = r.steps
		if err := context.Cause(r.ctx); err != nil {
			return fmt.Errorf("render template %s: %w", r.tmpl.name, err)
		}
	}
	return nil
}

// work accounts for looking at n bytes.
func (r *run) work(n int) error { return r.step(n >> 6) }

// alloc accounts for n new bytes, before they are made.
func (r *run) alloc(n int) error {
	if n < 0 || n > r.lim.Alloc-r.used {
		return limitErrorf("more than %d bytes of intermediate values", r.lim.Alloc)
	}
	r.used += n
	return r.work(n)
}

// allocItems accounts for a list of n items.
func (r *run) allocItems(n int) error {
	if n > r.lim.Alloc/16 {
		return r.alloc(-1)
	}
	return r.alloc(16*n + 24)
}

// enter and leave bracket every recursion of the interpreter.
func (r *run) enter() error {
	r.depth++
	if r.depth > maxEval {
		return limitErrorf("values or expressions nested more than %d levels deep", maxEval)
	}
	return nil
}

func (r *run) leave() { r.depth-- }

// enterCall and leaveCall bracket macro calls and recursive loops.
func (r *run) enterCall() error {
	r.calls++
	if r.calls > r.lim.Depth {
		return limitErrorf("more than %d calls inside of each other", r.lim.Depth)
	}
	return nil
}

func (r *run) leaveCall() { r.calls-- }

func (r *run) eval(x expr, f *frame) (Value, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.leave()
	if err := r.step(1); err != nil {
		return nil, err
	}
	return x.eval(r, f)
}

// evalAll evaluates expressions in order.
func (r *run) evalAll(xs []expr, f *frame) ([]Value, error) {
	if err := r.allocItems(len(xs)); err != nil {
		return nil, err
	}
	out := make([]Value, len(xs))
	for i, x := range xs {
		v, err := r.eval(x, f)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

// body runs statements up to the first break or continue.
func (r *run) body(body []stmt, f *frame) (signal, error) {
	if err := r.enter(); err != nil {
		return sigNone, err
	}
	defer r.leave()
	for _, s := range body {
		if err := r.step(1); err != nil {
			return sigNone, err
		}
		sig, err := s.exec(r, f)
		if err != nil {
			return sigNone, locate(err, r.tmpl.name, s.lineNo())
		}
		if sig != sigNone {
			return sig, nil
		}
	}
	return sigNone, nil
}

// newFrame makes a frame for a scope and loads its variables.
func (r *run) newFrame(parent *frame, sc *scope) (*frame, error) {
	if err := r.allocItems(sc.slots); err != nil {
		return nil, err
	}
	f := &frame{parent: parent, slots: make([]Value, sc.slots)}
	for i := range f.slots {
		f.slots[i] = missing
	}
	r.load(f, sc)
	return f, nil
}

// load gives the variables of a frame their first values.
func (r *run) load(f *frame, sc *scope) {
	for i := range sc.loads {
		l := &sc.loads[i]
		var v Value = missing
		switch l.kind {
		case loadResolve:
			v = r.resolve(l.name)
		case loadAlias:
			v = *f.slot(&l.from)
		}
		f.slots[l.slot] = v
	}
}

func (f *frame) slot(n *nameExpr) *Value {
	for h := n.hops; h > 0; h-- {
		f = f.parent
	}
	return &f.slots[n.slot]
}

// resolve finds a variable that no enclosing frame holds.
func (r *run) resolve(name string) Value {
	if v, ok := r.vars.Get(name); ok {
		return v
	}
	if fn := globals[name]; fn != nil {
		return fn
	}
	return missing
}

// write appends to the output, or to the innermost buffer.
func (r *run) write(s string) error {
	if r.nested > 0 {
		if err := r.alloc(len(s)); err != nil {
			return err
		}
	} else {
		if r.out.Len()+len(s) > r.lim.Output {
			return fmt.Errorf("%w: more than %d bytes", ErrOutput, r.lim.Output)
		}
		if err := r.work(len(s)); err != nil {
			return err
		}
	}
	r.out.WriteString(s)
	return nil
}

// capture runs fn with an empty buffer and returns what it wrote.
func (r *run) capture(fn func() (signal, error)) (string, signal, error) {
	saved := r.out
	r.out = &strings.Builder{}
	r.nested++
	sig, err := fn()
	text := r.out.String()
	r.nested--
	r.out = saved
	return text, sig, err
}
