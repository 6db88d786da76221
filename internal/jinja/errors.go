package jinja

import (
	"errors"
	"fmt"
)

// ErrLimit is returned, wrapped, when a template exceeds one of its [Limits].
var ErrLimit = errors.New("template limit exceeded")

// ErrOutput is the ErrLimit of a text that becomes too long.
var ErrOutput = fmt.Errorf("%w: output", ErrLimit)

// SyntaxError is returned by [Parse] when a source is not a valid template.
type SyntaxError struct {
	Template string // name given to Parse
	Line     int    // 1-based
	Msg      string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("parse template %s: line %d: %s", e.Template, e.Line, e.Msg)
}

// RaiseError is returned by [Template.Render] when the template called
// raise_exception: it refuses these variables, so this is the client's error.
type RaiseError struct {
	Template string
	Line     int
	Message  string // the text given to raise_exception
}

func (e *RaiseError) Error() string { return e.Message }

// ErrorKind names the Python exception that the same template raises there.
type ErrorKind string

// Kinds of [RenderError].
const (
	TypeError         ErrorKind = "TypeError"
	ValueError        ErrorKind = "ValueError"
	UndefinedError    ErrorKind = "UndefinedError"
	ZeroDivisionError ErrorKind = "ZeroDivisionError"
	OverflowError     ErrorKind = "OverflowError"
	KeyError          ErrorKind = "KeyError"
	IndexError        ErrorKind = "IndexError"
	SecurityError     ErrorKind = "SecurityError"
	RuntimeError      ErrorKind = "TemplateRuntimeError"
)

// RenderError is returned by [Template.Render] when an operation fails.
type RenderError struct {
	Template string
	Line     int
	Kind     ErrorKind
	Msg      string
}

func (e *RenderError) Error() string {
	return fmt.Sprintf("render template %s: line %d: %s: %s", e.Template, e.Line, e.Kind, e.Msg)
}

func errorf(kind ErrorKind, format string, args ...any) error {
	return &RenderError{Kind: kind, Msg: fmt.Sprintf(format, args...)}
}

func typeErrorf(format string, args ...any) error  { return errorf(TypeError, format, args...) }
func valueErrorf(format string, args ...any) error { return errorf(ValueError, format, args...) }

func limitErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrLimit, fmt.Sprintf(format, args...))
}

// locate fills in where an error happened, unless an inner statement did.
func locate(err error, template string, line int) error {
	var failed *RenderError
	if errors.As(err, &failed) && failed.Line == 0 {
		failed.Template, failed.Line = template, line
	}
	var raised *RaiseError
	if errors.As(err, &raised) && raised.Line == 0 {
		raised.Template, raised.Line = template, line
	}
	return err
}
