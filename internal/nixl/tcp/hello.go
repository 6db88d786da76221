package tcp

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

var greeting = wire.Greeting{Magic: 0x4c584e44, Version: 2} // "DNXL"

// errProtocol marks what a correct peer never sends.
var errProtocol = wire.ErrProtocol

type secret = wire.Secret

// connInfo is this transport's part of the metadata blob.
type connInfo struct {
	token secret
	tls   bool // it speaks nothing else
	addr  string
}

const connVersion = 3 // from 3 on, connections begin with a handshake

func (c connInfo) encode() []byte {
	b := append([]byte{connVersion}, c.token[:]...)
	return append(append(b, flagByte(c.tls)), c.addr...)
}

func parseConnInfo(b []byte) (connInfo, error) {
	var c connInfo
	const fixed = 1 + len(c.token) + 1
	if len(b) < fixed+1 || b[0] != connVersion || b[fixed-1] > 1 || len(b) > fixed+300 {
		return c, fmt.Errorf("connection data of %d bytes: %w", len(b), nixl.ErrMismatch)
	}
	copy(c.token[:], b[1:])
	c.tls = b[fixed-1] == 1
	c.addr = string(b[fixed:])
	return c, nil
}

func flagByte(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// hello is the first frame of a connection, behind the handshake.
type hello struct {
	token      secret
	checksums  bool   // the initiator wants them; if either side does, there are
	generation uint64 // of the session; the initiator counts them up
	ends       wire.Ends
}

func (h hello) encode() []byte {
	b := append(greeting.Begin(h.token), flagByte(h.checksums))
	return h.ends.Append(binary.LittleEndian.AppendUint64(b, h.generation))
}

func parseHello(b []byte) (h hello, err error) {
	token, b, err := greeting.Take(b, 1+8)
	if err != nil {
		return h, err
	}
	if b[0] > 1 {
		return h, fmt.Errorf("malformed hello: %w", errProtocol)
	}
	h = hello{token: token, checksums: b[0] == 1, generation: binary.LittleEndian.Uint64(b[1:])}
	h.ends, err = wire.TakeEndsOnly(b[1+8:])
	return h, err
}

// welcome answers a hello that was accepted. It tells the initiator what the
// target can take, so that it is never exceeded by mistake.
type welcome struct {
	silence     time.Duration
	open        uint32 // parts per connection
	descs       uint32 // per part
	openDescs   uint32 // of all open parts of a connection
	notifySize  uint32
	windowCount uint32
	windowBytes uint32
	checksums   bool // of all parts and notifications of this connection
}

func (w welcome) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(w.silence.Milliseconds()))
	for _, v := range []uint32{w.open, w.descs, w.openDescs, w.notifySize, w.windowCount, w.windowBytes} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return binary.LittleEndian.AppendUint32(b, uint32(flagByte(w.checksums)))
}

func parseWelcome(b []byte) (welcome, error) {
	if len(b) != 8*4 || b[28] > 1 || b[29]|b[30]|b[31] != 0 {
		return welcome{}, fmt.Errorf("welcome of %d bytes: %w", len(b), errProtocol)
	}
	u := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	w := welcome{
		silence: time.Duration(u(0)) * time.Millisecond,
		open:    u(1), descs: u(2), openDescs: u(3), notifySize: u(4), windowCount: u(5), windowBytes: u(6), checksums: u(7) == 1,
	}
	if w.silence <= 0 || w.open == 0 || w.descs == 0 || w.openDescs == 0 || w.windowCount == 0 || w.windowBytes == 0 {
		return welcome{}, fmt.Errorf("welcome with a zero limit: %w", errProtocol)
	}
	return w, nil
}
