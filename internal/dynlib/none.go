//go:build !linux || !(amd64 || arm64) || nodl

package dynlib

// Enabled reports whether this program can load libraries.
const Enabled = false

// Open returns ErrCompiledOut.
func Open(...string) (*Library, error) { return nil, ErrCompiledOut }

// Bind returns ErrCompiledOut.
func (l *Library) Bind(map[string]*uintptr) error { return ErrCompiledOut }

// Call is never reached: there is no library whose functions could be called.
func Call(uintptr, ...uintptr) uintptr { return 0 }

// Callback is never reached: there is no library that could call back.
func Callback(any) uintptr { return 0 }

// Func is never reached: there is no library whose functions could be called.
func Func(any, uintptr) {}
