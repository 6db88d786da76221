package dynlib

import "errors"

// ErrCompiledOut says that this program cannot load libraries.
var ErrCompiledOut = errors.New("loading of libraries at run time is not part of this program: it was built with the tag nodl, or for a system without support")

// Library is a loaded C library.
type Library struct {
	name   string
	handle uintptr
}

// Name is the name it was found by, such as "libucp.so.0".
func (l *Library) Name() string { return l.name }
