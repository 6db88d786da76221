package schema

import "fmt"

// Error is returned when a JSON schema is malformed, asks for something that is not
// supported, or cannot be satisfied.
type Error struct {
	Path       string // of the part of the schema: a JSON pointer, "#/properties/age"
	Reason     string
	impossible bool // well-formed, but no value matches
}

func (e *Error) Error() string { return e.Path + ": " + e.Reason }

func refuse(at *value, format string, args ...any) *Error {
	return &Error{Path: at.path(), Reason: fmt.Sprintf(format, args...)}
}

func impossible(at *value, format string, args ...any) *Error {
	e := refuse(at, format, args...)
	e.impossible = true
	return e
}
