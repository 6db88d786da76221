package requestplane

import (
	"errors"
	"fmt"
)

// The errors that callers distinguish, with errors.Is.
var (
	// ErrCannotConnect is returned by Call when no connection to the address
	// could be made: the request was never sent.
	ErrCannotConnect = errors.New("cannot connect")
	// ErrDisconnected is returned when the connection broke. It also matches
	// every ErrIncomplete.
	ErrDisconnected = errors.New("disconnected")
	// ErrIncomplete is returned by Recv when the stream ended without the final marker.
	// The peer vanished, and how much it has done is unknown.
	ErrIncomplete = fmt.Errorf("stream incomplete: %w", ErrDisconnected)
	// ErrUnknownEndpoint is matched when the server has no handler for the path.
	ErrUnknownEndpoint = errors.New("unknown endpoint")
	// ErrOverloaded is matched when the server is at its limit of running requests, or
	// when the handler returns that kind.
	ErrOverloaded = errors.New("overloaded")
	// ErrDraining is matched when the endpoint no longer takes new requests.
	ErrDraining = errors.New("draining")
	// ErrTimeout is matched when the caller's deadline passed on the server. It is
	// the cause of the handler's context then.
	ErrTimeout = errors.New("deadline passed")
	// ErrTooLarge is returned when a request or an item exceeds the frame limit.
	ErrTooLarge = errors.New("message too large")
	// ErrStreamClosed is returned by Recv after Close.
	ErrStreamClosed = errors.New("stream closed")
	// ErrClientClosed is returned by Call after the client's Close, and by Recv on
	// streams that were open then.
	ErrClientClosed = errors.New("client closed")
	// ErrServerClosed is returned by Handle after the server's Close. It is the
	// cause of the contexts of handlers that were running then.
	ErrServerClosed = errors.New("server closed")
	// ErrEndpointExists is returned by Handle when the path is already served.
	ErrEndpointExists = errors.New("endpoint exists")
	// ErrClientGone is the cause of a handler's context when the caller's
	// connection died.
	ErrClientGone = errors.New("client gone")
	// ErrStopped is the cause of a handler's context when the caller closed the
	// stream or its context ended.
	ErrStopped = errors.New("stopped by caller")
)

var errNoPipes = errors.New("the nats request plane needs a connection to NATS, and this process has none")

// Kind classifies a [RemoteError].
type Kind string

// The kinds of remote errors. Only the server itself sets the last three, never a
// handler. They mean that no handler ran, or that it ran out of time.
const (
	KindInvalidArgument Kind = "invalid_argument" // the request cannot succeed as it is
	KindOverloaded      Kind = "overloaded"       // try another instance, or later
	KindCancelled       Kind = "cancelled"        // the handler was told to stop
	KindInternal        Kind = "internal"         // the handler failed
	KindUnavailable     Kind = "unavailable"      // the handler cannot work now
	KindUnknownEndpoint Kind = "unknown_endpoint"
	KindDraining        Kind = "draining"
	KindTimeout         Kind = "timeout"
	KindNotPrefilled    Kind = "not_prefilled" // prefill workers failed, and the handler must not prefill itself
)

// RemoteError is a failure that the other side reported, as opposed to a failure to reach
// it. It matches the error variable of its kind, if there is one.
type RemoteError struct {
	Kind    Kind
	Message string
}

// Error returns the kind and the message.
func (e *RemoteError) Error() string {
	if e.Message == "" {
		return string(e.Kind)
	}
	return string(e.Kind) + ": " + e.Message
}

// Is reports whether target is the error variable of e's kind.
func (e *RemoteError) Is(target error) bool {
	switch target {
	case ErrOverloaded:
		return e.Kind == KindOverloaded
	case ErrUnknownEndpoint:
		return e.Kind == KindUnknownEndpoint
	case ErrDraining:
		return e.Kind == KindDraining
	case ErrTimeout:
		return e.Kind == KindTimeout
	}
	return false
}

// NotStarted reports whether err proves that no handler ran. The request can then be sent
// elsewhere without repeating work.
func NotStarted(err error) bool {
	return errors.Is(err, ErrCannotConnect) || errors.Is(err, ErrUnknownEndpoint) || errors.Is(err, ErrDraining)
}
