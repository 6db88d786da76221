package dynamo

import (
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
)

// ErrNoInstance is returned by calls when nobody serves the endpoint, or not the instance
// that was asked for.
var ErrNoInstance = runtime.ErrNoInstance

// Kind classifies an [Error]. Handlers may use the ones below; callers may see others of
// the request plane, such as "draining".
type Kind string

// The kinds of errors of handlers.
const (
	InvalidArgument Kind = Kind(requestplane.KindInvalidArgument) // the request cannot succeed as it is
	Overloaded      Kind = Kind(requestplane.KindOverloaded)      // another instance may take it, or this one later
	Unavailable     Kind = Kind(requestplane.KindUnavailable)     // the handler cannot work now
	Internal        Kind = Kind(requestplane.KindInternal)        // the handler failed; of all other errors
	Cancelled       Kind = Kind(requestplane.KindCancelled)       // the caller left
	Timeout         Kind = Kind(requestplane.KindTimeout)         // the caller's deadline passed
)

// Error is what a handler tells its caller, and what the caller gets.
type Error struct {
	Kind    Kind
	Message string
}

// Error returns the kind and the message.
func (e *Error) Error() string {
	return (&requestplane.RemoteError{Kind: requestplane.Kind(e.Kind), Message: e.Message}).Error()
}

// Errorf makes an error of a kind, for a handler to return.
func Errorf(kind Kind, format string, args ...any) error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// remote turns an error of a handler into one for the request plane.
func remote(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return &requestplane.RemoteError{Kind: requestplane.Kind(e.Kind), Message: e.Message}
	}
	return err
}

// received turns an error of the request plane into one that callers can look into.
func received(err error) error {
	var e *requestplane.RemoteError
	if errors.As(err, &e) {
		return &Error{Kind: Kind(e.Kind), Message: e.Message}
	}
	return err
}
