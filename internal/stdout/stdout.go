// Package stdout watches the standard output of a program, so that an answer that
// could not be written does not end as a success.
package stdout

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
)

// Error says that output could not be written.
type Error struct{ Err error }

func (e *Error) Error() string {
	cause := e.Err
	var path *os.PathError // of it, only the reason means something: the name is that of the descriptor
	if errors.As(cause, &path) {
		cause = path.Err
	}
	return "cannot write the output: " + cause.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Output passes writes on and remembers the first that failed. Writes of several
// goroutines are as safe as those of the stream below.
type Output struct {
	w io.Writer

	mu  sync.Mutex
	err *Error
}

// Watch returns a watched w. Of a file, it also has the methods by which libraries
// recognize a terminal: Fd, Read and Close.
func Watch(w io.Writer) (io.Writer, *Output) {
	o := &Output{w: w}
	if f, ok := w.(*os.File); ok {
		return &file{o, f}, o
	}
	return o, o
}

// Write writes to the stream; its errors are of type [*Error].
func (o *Output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err == nil {
		return n, nil
	}
	e := &Error{err}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = e
	}
	return n, e
}

// Err returns the first failure, or nil. That nobody reads any longer, as of a pipe to
// head, is none.
func (o *Output) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil || Unread(o.err) {
		return nil
	}
	return o.err
}

// Unread reports whether err is a write to a pipe that nobody reads any longer.
func Unread(err error) bool {
	var e *Error
	return errors.As(err, &e) && errors.Is(e, syscall.EPIPE)
}

// file is an output with the methods of a terminal.
type file struct {
	*Output
	f *os.File
}

func (f *file) Fd() uintptr                { return f.f.Fd() }
func (f *file) Read(p []byte) (int, error) { return f.f.Read(p) }
func (f *file) Close() error               { return f.f.Close() }
