package nixl

import (
	"errors"
	"strconv"
)

// Status is the state or the outcome of a transfer. The numeric values are those
// of NIXL's nixl_status_t, so that logs and metrics read alike.
//
// The negative values are also the sentinel errors of this package: errors are
// wrapped around them and errors.Is finds them.
type Status int8

// The states and outcomes of a transfer.
const (
	InProgress          Status = 1   // posted, not finished
	Success             Status = 0   // data and notification have arrived
	ErrNotPosted        Status = -1  // the transfer was never posted
	ErrInvalidParam     Status = -2  // malformed argument: empty or unequal lists, own name as peer
	ErrBackend          Status = -3  // a transport failed, or a limit of an agent is reached
	ErrNotFound         Status = -4  // unknown or outdated peer, or memory that is not registered
	ErrMismatch         Status = -5  // descriptor lists or metadata that do not fit together
	ErrNotAllowed       Status = -6  // refused: missing, revoked or expired ticket, bounds, memory in use
	ErrRepostActive     Status = -7  // the transfer is still in progress
	ErrUnknown          Status = -8  // none of the others
	ErrNotSupported     Status = -9  // no transport can do this
	ErrRemoteDisconnect Status = -10 // the peer is gone; what it had received of a write is undefined
	ErrCanceled         Status = -11 // released or past its deadline before it finished
	ErrNoTelemetry      Status = -12 // nothing was measured yet
)

// String returns the status in words.
func (s Status) String() string {
	switch s {
	case InProgress:
		return "in progress"
	case Success:
		return "success"
	case ErrNotPosted:
		return "not posted"
	case ErrInvalidParam:
		return "invalid parameter"
	case ErrBackend:
		return "backend error"
	case ErrNotFound:
		return "not found"
	case ErrMismatch:
		return "mismatch"
	case ErrNotAllowed:
		return "not allowed"
	case ErrRepostActive:
		return "repost of an active transfer"
	case ErrUnknown:
		return "unknown error"
	case ErrNotSupported:
		return "not supported"
	case ErrRemoteDisconnect:
		return "remote disconnected"
	case ErrCanceled:
		return "canceled"
	case ErrNoTelemetry:
		return "no telemetry"
	}
	return "status " + strconv.Itoa(int(s))
}

// Label is the status as NIXL's telemetry names it, for metrics: "in_progress", "success",
// "not_posted", "invalid_param" and so on; "unknown" for values NIXL does not have.
func (s Status) Label() string {
	switch s {
	case InProgress:
		return "in_progress"
	case Success:
		return "success"
	case ErrNotPosted:
		return "not_posted"
	case ErrInvalidParam:
		return "invalid_param"
	case ErrBackend:
		return "backend"
	case ErrNotFound:
		return "not_found"
	case ErrMismatch:
		return "mismatch"
	case ErrNotAllowed:
		return "not_allowed"
	case ErrRepostActive:
		return "repost_active"
	case ErrNotSupported:
		return "not_supported"
	case ErrRemoteDisconnect:
		return "remote_disconnect"
	case ErrCanceled:
		return "canceled"
	case ErrNoTelemetry:
		return "no_telemetry"
	}
	return "unknown"
}

// Error makes the negative values sentinel errors.
func (s Status) Error() string { return s.String() }

// MarshalText returns the words of String, for JSON keys and metric labels.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// StatusOf returns the status an error of this package stands for: Success for
// nil, ErrUnknown for an error from elsewhere.
func StatusOf(err error) Status {
	if err == nil {
		return Success
	}
	var s Status
	if errors.As(err, &s) && s < 0 {
		return s
	}
	return ErrUnknown
}
