package jinja

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// MaxSource is the size of the largest source that Parse accepts, in bytes. The
// longest published chat templates have about 20 KB.
const MaxSource = 1 << 20

// Limits bound one rendering. Zero fields take the value of [DefaultLimits].
type Limits struct {
	Output int // bytes of rendered text
	Alloc  int // bytes of all intermediate strings, lists and dictionaries together
	Steps  int // evaluated nodes, loop rounds and 64-byte units of bulk work
	Depth  int // macro calls and recursive loops inside of each other
}

// DefaultLimits leave room for a conversation of some tens of megabytes.
func DefaultLimits() Limits {
	return Limits{Output: 64 << 20, Alloc: 512 << 20, Steps: 20_000_000, Depth: 100}
}

func (l Limits) withDefaults() Limits {
	def := DefaultLimits()
	for _, f := range []struct{ have, def *int }{
		{&l.Output, &def.Output}, {&l.Alloc, &def.Alloc}, {&l.Steps, &def.Steps}, {&l.Depth, &def.Depth},
	} {
		if *f.have <= 0 {
			*f.have = *f.def
		}
	}
	return l
}

// Options adjust a rendering. The zero value is ready to use.
type Options struct {
	// Now is the clock of strftime_now; nil is time.Now. Its location is the
	// location that templates see.
	Now    func() time.Time
	Limits Limits
}

// Template is a parsed template. It never changes and is safe for concurrent use.
type Template struct {
	name  string
	body  []stmt
	scope *scope
}

// Parse parses a template. The name appears in errors only. It returns a
// *SyntaxError, or an error wrapping [ErrLimit] if the source is larger than
// [MaxSource].
func Parse(name, source string) (*Template, error) {
	if len(source) > MaxSource {
		return nil, fmt.Errorf("parse template %s: %w: %d bytes of source, at most %d", name, ErrLimit, len(source), MaxSource)
	}
	tokens, err := lex(name, source)
	if err != nil {
		return nil, err
	}
	p := &parser{name: name, tokens: tokens}
	body, err := p.parse()
	if err != nil {
		return nil, err
	}
	sc, err := bind(name, body)
	if err != nil {
		return nil, err
	}
	return &Template{name: name, body: body, scope: sc}, nil
}

// Name is the name given to Parse.
func (t *Template) Name() string { return t.name }

// Render runs the template over the variables and returns its text. It returns
// a *RaiseError if the template called raise_exception, a *RenderError if an
// operation failed, an error wrapping [ErrLimit], or one wrapping the cause of
// ctx's end.
func (t *Template) Render(ctx context.Context, vars *Dict, opts Options) (string, error) {
	if vars == nil {
		vars = NewDict()
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if err := context.Cause(ctx); err != nil {
		return "", fmt.Errorf("render template %s: %w", t.name, err)
	}
	r := &run{
		out:  &strings.Builder{},
		ctx:  ctx,
		tmpl: t,
		vars: vars,
		lib:  builtins(),
		now:  opts.Now,
		lim:  opts.Limits.withDefaults(),
	}
	f, err := r.newFrame(nil, t.scope)
	if err == nil {
		_, err = r.body(t.body, f)
	}
	if err != nil {
		return "", locate(err, t.name, 1)
	}
	return r.out.String(), nil
}
