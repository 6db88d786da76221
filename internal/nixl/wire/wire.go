// Package wire holds what several transports have in common: how a
// descriptor, an access, a probe, a hello and an error lie in bytes, and how peers are
// listened to and kept apart.
//
// All numbers are little-endian. What is parsed comes from outside: errors are
// [ErrProtocol], nothing is allocated for what is only claimed, and nothing panics.
package wire

import (
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl"
)

// ErrProtocol marks what a correct peer never sends.
var ErrProtocol = errors.New("protocol violation")

// Secret is part of an agent's metadata; peers must present it.
type Secret [32]byte

// Equal compares in a time that tells nothing about either.
func (s Secret) Equal(o Secret) bool { return subtle.ConstantTimeCompare(s[:], o[:]) == 1 }

// HandshakeError gives what ended a handshake the status that it has for callers.
func HandshakeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, handshake.ErrSecret):
		return fmt.Errorf("%w: %w", nixl.ErrNotAllowed, err)
	case errors.Is(err, handshake.ErrVersion), errors.Is(err, handshake.ErrForeign), errors.Is(err, handshake.ErrWantsTLS):
		return fmt.Errorf("%w: %w", nixl.ErrMismatch, err)
	case errors.Is(err, handshake.ErrNoKey):
		return fmt.Errorf("%w: %w", nixl.ErrInvalidParam, err)
	}
	return fmt.Errorf("%w: %w", nixl.ErrRemoteDisconnect, err)
}

// Refuse counts and logs a connection that did not get as far as a peer, for its transport.
func Refuse(h nixl.Events, r *handshake.Refusals, transport string, err error) {
	why := nixl.RefusedHello
	if errors.Is(err, handshake.ErrCrowded) || errors.Is(err, ErrFull) {
		why = nixl.RefusedLimit
	}
	h.Refused(why)
	r.Warn(h.Log(), "nixl connection refused", "transport", transport, "error", err)
}

// ErrFull is why a connection is refused where peers have as many as they may.
var ErrFull = fmt.Errorf("the limit of connections from peers is reached: %w", nixl.ErrNotAllowed)

// MaxText limits the text of a peer that logs and errors show, in bytes.
const MaxText = 512

// Text returns the text of an error for a peer.
func Text(err error) []byte {
	text := err.Error()
	return []byte(text[:min(len(text), MaxText)])
}

// Printable makes text of a peer safe for logs.
func Printable(b []byte) string {
	s := strconv.QuoteToASCII(string(b[:min(len(b), MaxText)]))
	return s[1 : len(s)-1]
}

// ResultStatus translates the status that a failed peer sent: it cannot report
// anything but errors.
func ResultStatus(s nixl.Status) nixl.Status {
	if s >= 0 || s < nixl.ErrNoTelemetry {
		return nixl.ErrUnknown
	}
	return s
}

// ResultError is the error that a peer's status and text stand for; nil for success.
func ResultError(peer string, s nixl.Status, text []byte) error {
	if s == nixl.Success {
		return nil
	}
	return fmt.Errorf("peer %q: %s: %w", peer, Printable(text), ResultStatus(s))
}

// DescBytes is the size of a descriptor: u64 address, u64 length, u64 device.
const DescBytes = 24

// AppendDesc appends a descriptor.
func AppendDesc(b []byte, d nixl.Desc) []byte {
	b = binary.LittleEndian.AppendUint64(b, d.Addr)
	b = binary.LittleEndian.AppendUint64(b, d.Len)
	return binary.LittleEndian.AppendUint64(b, d.DevID)
}

// ParseDesc reads the descriptor that b, which has DescBytes at least, begins with.
func ParseDesc(b []byte) nixl.Desc {
	return nixl.Desc{Addr: binary.LittleEndian.Uint64(b), Len: binary.LittleEndian.Uint64(b[8:]), DevID: binary.LittleEndian.Uint64(b[16:])}
}

// ParseDescs reads the descriptors that fill b: at least one, none of them empty, whose
// lengths have a sum.
func ParseDescs(b []byte) (descs []nixl.Desc, total uint64, err error) {
	n := len(b) / DescBytes
	if n < 1 || len(b) != n*DescBytes {
		return nil, 0, fmt.Errorf("descriptors in %d bytes: %w", len(b), ErrProtocol)
	}
	descs = make([]nixl.Desc, n)
	for i := range descs {
		descs[i] = ParseDesc(b[i*DescBytes:])
	}
	total, ok := nixl.TotalBytes(descs)
	if !ok {
		return nil, 0, fmt.Errorf("empty or overlong descriptor: %w", ErrProtocol)
	}
	return descs, total, nil
}

// Elsewhere reads the descriptors of memory that stands in for the asked one, which lie at
// the beginning of b: as many, of the same lengths.
func Elsewhere(b []byte, asked []nixl.Desc) ([]nixl.Desc, error) {
	if len(b) < DescBytes*len(asked) {
		return nil, fmt.Errorf("%d descriptors in %d bytes: %w", len(asked), len(b), ErrProtocol)
	}
	where := make([]nixl.Desc, len(asked))
	for i := range where {
		if where[i] = ParseDesc(b[i*DescBytes:]); where[i].Len != asked[i].Len {
			return nil, fmt.Errorf("permit for %s in place of %s: %w", where[i], asked[i], ErrProtocol)
		}
	}
	return where, nil
}

// EncodeAccess is a ticket and descriptors.
func EncodeAccess(ticket nixl.TicketID, descs []nixl.Desc) []byte {
	b := make([]byte, 0, len(ticket)+DescBytes*len(descs))
	b = append(b, ticket[:]...)
	for _, d := range descs {
		b = AppendDesc(b, d)
	}
	return b
}

// ParseAccess reads what EncodeAccess has made.
func ParseAccess(b []byte) (ticket nixl.TicketID, descs []nixl.Desc, err error) {
	if len(b) < len(ticket) {
		return ticket, nil, fmt.Errorf("access of %d bytes: %w", len(b), ErrProtocol)
	}
	b = b[copy(ticket[:], b):]
	descs, _, err = ParseDescs(b)
	return ticket, descs, err
}

// EncodeProbe is a ticket, a descriptor and a checksum.
func EncodeProbe(p nixl.Probe) []byte {
	b := AppendDesc(append([]byte(nil), p.Ticket[:]...), p.Desc)
	return binary.LittleEndian.AppendUint32(b, p.Sum)
}

// ParseProbe reads what EncodeProbe has made.
func ParseProbe(b []byte) (nixl.Probe, error) {
	var p nixl.Probe
	if len(b) != len(p.Ticket)+DescBytes+4 {
		return p, fmt.Errorf("probe of %d bytes: %w", len(b), ErrProtocol)
	}
	copy(p.Ticket[:], b)
	p.Desc = ParseDesc(b[len(p.Ticket):])
	p.Sum = binary.LittleEndian.Uint32(b[len(p.Ticket)+DescBytes:])
	return p, nil
}

// AppendString appends a string of up to 255 bytes, behind its length in one byte.
func AppendString(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

// TakeStrings reads strings from the beginning of b, and returns what is behind them.
func TakeStrings(b []byte, into ...*string) (rest []byte, ok bool) {
	for _, s := range into {
		if len(b) == 0 || len(b)-1 < int(b[0]) {
			return nil, false
		}
		n := 1 + int(b[0])
		*s, b = string(b[1:n]), b[n:]
	}
	return b, true
}

// Ends names the initiator and the target of a connection: with the target named, another agent at
// the same address refuses the initiator.
type Ends struct {
	From nixl.Identity
	To   nixl.Identity // name and incarnation
}

// Append appends the names of both.
func (e Ends) Append(b []byte) []byte {
	for _, s := range []string{e.From.Name, e.From.Incarnation, e.From.HostID, e.To.Name, e.To.Incarnation} {
		b = AppendString(b, s)
	}
	return b
}

// TakeEnds reads what Append has made from the beginning of b, and returns what is behind
// it. Who connects has a name and an incarnation.
func TakeEnds(b []byte) (e Ends, rest []byte, err error) {
	rest, ok := TakeStrings(b, &e.From.Name, &e.From.Incarnation, &e.From.HostID, &e.To.Name, &e.To.Incarnation)
	switch {
	case !ok:
		return Ends{}, nil, fmt.Errorf("truncated hello: %w", ErrProtocol)
	case e.From.Name == "" || e.From.Incarnation == "":
		return Ends{}, nil, fmt.Errorf("malformed hello without a sender: %w", ErrProtocol)
	}
	return e, rest, nil
}

// Check reports why an agent is not the one that is meant.
func (e Ends) Check(self nixl.Identity) error {
	switch {
	case e.To.Name != self.Name:
		return fmt.Errorf("this is agent %q, not %q: %w", self.Name, e.To.Name, nixl.ErrMismatch)
	case e.To.Incarnation != self.Incarnation:
		return fmt.Errorf("agent %q was restarted: %w", self.Name, nixl.ErrMismatch)
	}
	return nil
}
