package ucp

import "strconv"

// Status is an outcome of a UCX function, ucs_status_t.
type Status int8

// The outcomes that callers tell apart.
const (
	OK              Status = 0
	InProgress      Status = 1
	IOError         Status = -3
	Unreachable     Status = -6
	Busy            Status = -15
	Canceled        Status = -16
	NotConnected    Status = -24
	ConnectionReset Status = -25
	EndpointTimeout Status = -80
)

var words = map[Status]string{
	-1: "no message", -2: "no resource", IOError: "input or output failed", -4: "out of memory", -5: "invalid parameter",
	Unreachable: "unreachable: no transport in common", -7: "invalid address", -8: "not implemented", -9: "message truncated",
	-10: "no progress", -11: "buffer too small", -12: "no such element", -13: "could not connect", -14: "no such device",
	Busy: "busy", Canceled: "canceled", -17: "shared memory segment", -18: "exists already", -19: "out of range",
	-20: "timed out", -21: "limit exceeded", -22: "not supported", -23: "rejected by the peer", NotConnected: "not connected",
	ConnectionReset: "connection reset", -40: "first link failure", -60: "first endpoint failure", EndpointTimeout: "peer does not answer",
}

// Error makes a failed status an error.
func (s Status) Error() string {
	if w := words[s]; w != "" {
		return "ucx: " + w
	}
	return "ucx: status " + strconv.Itoa(int(s))
}

// statusOf reads what a function returned: the status is one byte, and the rest of the
// register is undefined.
func statusOf(r uintptr) Status { return Status(int8(r)) }

// check turns a status into an error.
func check(r uintptr) error {
	if s := statusOf(r); s != OK {
		return s
	}
	return nil
}
