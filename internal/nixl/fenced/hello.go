//go:build linux

package fenced

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

var greeting = wire.Greeting{Magic: 0x4d484e44, Version: 3} // "DNHM"

// errProtocol marks what a correct peer never sends.
var errProtocol = wire.ErrProtocol

// spoken is the protocol after the handshake.
var spoken = handshake.Protocol{Name: "dnxhst", Version: 4}

// hello is the first frame of a connection, behind the handshake.
type hello struct {
	token secret
	ends  wire.Ends
}

func (h hello) encode() []byte { return h.ends.Append(greeting.Begin(h.token)) }

func parseHello(b []byte) (h hello, err error) {
	token, rest, err := greeting.Take(b, 0)
	if err != nil {
		return h, err
	}
	h.token = token
	h.ends, err = wire.TakeEndsOnly(rest)
	return h, err
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
