package config

import (
	"fmt"
	"slices"
	"time"
)

// OriginKind is the layer a value came from.
type OriginKind int

// The layers, from the weakest to the strongest.
const (
	FromDefault OriginKind = iota
	FromFile
	FromEnv
	FromFlag
)

// String returns "default", "file", "env" or "flag".
func (k OriginKind) String() string {
	return [...]string{"default", "file", "env", "flag"}[k]
}

// Origin says where a value came from.
type Origin struct {
	Kind OriginKind
	Name string // path of the file, name of the variable or flag; empty for a default
	Line int    // in the file, from 1
}

// String returns "dynamod.yaml:12", "DYN_HTTP_PORT", "--frontend-port" or "default".
func (o Origin) String() string {
	switch o.Kind {
	case FromFile:
		if o.Line == 0 {
			return o.Name
		}
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	case FromEnv:
		return o.Name
	case FromFlag:
		return "--" + o.Name
	}
	return "default"
}

// Value is one effective setting, ready to be shown.
type Value struct {
	Key    string
	Value  any // secrets as [Secret]
	Origin Origin
}

// Text returns the value as it would stand in a file. Secrets are hidden, and PEM texts in
// the place of files, which may be keys.
func (v Value) Text() string {
	if text, ok := v.Value.(string); ok && isPEM(text) {
		return hidden
	}
	return format(v.Value)
}

// Plain returns the value for JSON and YAML: numbers, booleans and lists stay
// what they are, durations and sizes become text with a unit, secrets are hidden.
func (v Value) Plain() any {
	switch v.Value.(type) {
	case time.Duration, Size, Secret, string:
		return v.Text()
	}
	return v.Value
}

// Origins knows every effective value and where it came from. It is never
// changed after loading.
type Origins struct {
	file     string
	values   []Value
	warnings []string
}

// File returns the path of the configuration file that was read, or "".
func (o *Origins) File() string { return o.file }

// All returns every value, in the order of the table.
func (o *Origins) All() []Value { return slices.Clone(o.values) }

// Of returns the value of one key.
func (o *Origins) Of(key string) (Value, bool) {
	i := slices.IndexFunc(o.values, func(v Value) bool { return v.Key == key })
	if i < 0 {
		return Value{}, false
	}
	return o.values[i], true
}

// Set reports whether the key was set by anyone; false for a default.
func (o *Origins) Set(key string) bool {
	v, ok := o.Of(key)
	return ok && v.Origin.Kind != FromDefault
}

// Warnings returns what is suspicious but not wrong, such as an environment
// variable that looks like a setting and is none.
func (o *Origins) Warnings() []string { return slices.Clone(o.warnings) }
