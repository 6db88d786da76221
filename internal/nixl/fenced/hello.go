//go:build linux

package fenced

import (
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
)

const (
	helloMagic   = 0x4d484e44 // "DNHM"
	helloVersion = 3
)

// errProtocol marks what a correct peer never sends.
var errProtocol = errors.New("protocol violation")

// hello is the first frame of a connection. It names the target too, so that
// another agent at the same socket does not let the initiator in.
type hello struct {
	token secret
	from  nixl.Identity
	to    nixl.Identity // name and incarnation
}

func (h hello) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, helloMagic)
	b = binary.LittleEndian.AppendUint16(b, helloVersion)
	b = append(b, h.token[:]...)
	for _, s := range []string{h.from.Name, h.from.Incarnation, h.from.HostID, h.to.Name, h.to.Incarnation} {
		b = appendString(b, s)
	}
	return b
}

func parseHello(b []byte) (hello, error) {
	var h hello
	if len(b) < 4+2+len(h.token) || binary.LittleEndian.Uint32(b) != helloMagic {
		return h, fmt.Errorf("no hello: %w", errProtocol)
	}
	if v := binary.LittleEndian.Uint16(b[4:]); v != helloVersion {
		return h, fmt.Errorf("hello of version %d, want %d: %w", v, helloVersion, nixl.ErrMismatch)
	}
	b = b[6:]
	b = b[copy(h.token[:], b):]
	if !takeStrings(b, &h.from.Name, &h.from.Incarnation, &h.from.HostID, &h.to.Name, &h.to.Incarnation) || h.from.Name == "" || h.from.Incarnation == "" {
		return hello{}, fmt.Errorf("malformed hello: %w", errProtocol)
	}
	return h, nil
}

// check reports why the target does not let the initiator in.
func (h hello) check(self nixl.Identity, token secret) error {
	switch {
	case subtle.ConstantTimeCompare(h.token[:], token[:]) != 1:
		return fmt.Errorf("wrong secret: %w", nixl.ErrNotAllowed)
	case h.to.Name != self.Name:
		return fmt.Errorf("this is agent %q, not %q: %w", self.Name, h.to.Name, nixl.ErrMismatch)
	case h.to.Incarnation != self.Incarnation:
		return fmt.Errorf("agent %q was restarted: %w", self.Name, nixl.ErrMismatch)
	}
	return nil
}

// welcome answers a hello that was accepted. It tells the initiator what the
// target can take, so that it is never exceeded by mistake. The descriptor of the
// fences travels with it.
type welcome struct {
	silence time.Duration
	fences  uint32 // accesses open at a time
	window  uint32 // notifications not accepted yet
}

func (w welcome) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(w.silence.Milliseconds()))
	b = binary.LittleEndian.AppendUint32(b, w.fences)
	return binary.LittleEndian.AppendUint32(b, w.window)
}

func parseWelcome(b []byte) (welcome, error) {
	if len(b) != 3*4 {
		return welcome{}, fmt.Errorf("welcome of %d bytes: %w", len(b), errProtocol)
	}
	u := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	w := welcome{silence: time.Duration(u(0)) * time.Millisecond, fences: u(1), window: u(2)}
	if w.silence <= 0 || w.fences == 0 || w.fences > 1<<16 || w.window == 0 || w.window > 1<<16 {
		return welcome{}, fmt.Errorf("welcome with a limit of zero or of absurd size: %w", errProtocol)
	}
	return w, nil
}
