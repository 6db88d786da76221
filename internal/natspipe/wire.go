package natspipe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Root begins the subjects of all pipes. A process listens at Root.NAME, and receives what is
// sent over its pipes at Root.NAME.TOKEN; NAME and TOKEN are random.
const Root = "dynctl.plane"

// kind is the first byte of a message.
type kind byte

const (
	kindOpen   kind = 1 // to a listener; the payload is the version
	kindAccept kind = 2 // the answer; from the subject where the listener receives
	kindData   kind = 3
	kindBeat   kind = 4 // no bytes: the sender lives, and tells how much it allows
	kindAsk    kind = 5 // a beat that is answered with a beat
	kindFin    kind = 6 // the sender writes no more
	kindBye    kind = 7 // the sender neither writes nor reads any more
	kindReset  kind = 8 // the pipe is broken; the payload says why. Its number counts for nothing
)

const (
	version   = 1
	headerLen = 1 + 8 + 8
	maxReason = 256 // bytes
)

// header begins each message.
type header struct {
	kind    kind
	number  uint64 // of the messages in this direction, from 0
	allowed uint64 // the number of bytes that the receiver of this message may send in all
}

var errMessage = errors.New("malformed message")

func (h header) append(dst []byte) []byte {
	dst = append(dst, byte(h.kind))
	dst = binary.BigEndian.AppendUint64(dst, h.number)
	return binary.BigEndian.AppendUint64(dst, h.allowed)
}

func parse(data []byte) (h header, payload []byte, err error) {
	if len(data) < headerLen {
		return h, nil, fmt.Errorf("%w: %d bytes", errMessage, len(data))
	}
	h = header{kind(data[0]), binary.BigEndian.Uint64(data[1:]), binary.BigEndian.Uint64(data[9:])}
	return h, data[headerLen:], nil
}

// isSubject reports whether a subject has the given number of random tokens after Root.
// Nothing is sent to others, whatever a peer gives as its own: a stranger could otherwise
// have this process write to any service in NATS.
func isSubject(s string, tokens int) bool {
	rest, ok := strings.CutPrefix(s, Root+".")
	if !ok || len(rest) > 100 || strings.Count(rest, ".") != tokens-1 {
		return false
	}
	for token := range strings.SplitSeq(rest, ".") {
		if token == "" || strings.Trim(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
			return false
		}
	}
	return true
}
