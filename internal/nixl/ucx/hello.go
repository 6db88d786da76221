package ucx

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

var greeting = wire.Greeting{Magic: 0x55584e44, Version: 2} // "DNXU"

const connVersion = 2 // from 2 on, connections begin with a handshake

type secret = wire.Secret

// connInfo is this transport's part of the metadata blob.
type connInfo struct {
	token secret
	addr  string // host and port that takes hellos
}

func (c connInfo) encode() []byte {
	return append(append([]byte{connVersion}, c.token[:]...), c.addr...)
}

func parseConnInfo(b []byte) (connInfo, error) {
	var c connInfo
	if len(b) < 1+len(c.token)+1 || b[0] != connVersion || len(b) > 1+len(c.token)+300 {
		return c, fmt.Errorf("connection data of %d bytes: %w", len(b), nixl.ErrMismatch)
	}
	copy(c.token[:], b[1:])
	c.addr = string(b[1+len(c.token):])
	return c, nil
}

// hello asks to be let in.
type hello struct {
	token      secret
	generation uint64 // of the session; the initiator counts them up
	ends       wire.Ends
	address    []byte // UCX address of the initiator's end of the connection
}

func (h hello) encode() []byte {
	b := binary.LittleEndian.AppendUint64(greeting.Begin(h.token), h.generation)
	return append(h.ends.Append(b), h.address...)
}

func parseHello(b []byte) (hello, error) {
	token, b, err := greeting.Take(b, 8)
	if err != nil {
		return hello{}, err
	}
	ends, address, err := wire.TakeEnds(b[8:])
	if err == nil && len(address) == 0 {
		err = fmt.Errorf("hello without an address: %w", errProtocol)
	}
	if err != nil {
		return hello{token: token}, err
	}
	return hello{token: token, generation: binary.LittleEndian.Uint64(b), ends: ends, address: address}, nil
}

// known reports whether the sender has read the metadata of this run of this agent.
// Nothing else of a hello may be looked at before, its address least of all.
func (h hello) known(token secret) bool { return h.token.Equal(token) }

// welcome answers a hello that was accepted.
type welcome struct {
	silence time.Duration
	open    uint32 // accesses at a time
	window  uint32 // notifications not accepted yet
	direct  bool   // devices of the two ends may access each other's memory
	address []byte // UCX address of the target's end of the connection
}

func (w welcome) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(w.silence.Milliseconds()))
	b = binary.LittleEndian.AppendUint32(b, w.open)
	b = binary.LittleEndian.AppendUint32(b, w.window)
	direct := byte(0)
	if w.direct {
		direct = 1
	}
	return append(append(b, direct), w.address...)
}

func parseWelcome(b []byte) (welcome, error) {
	if len(b) < 3*4+2 {
		return welcome{}, fmt.Errorf("welcome of %d bytes: %w", len(b), errProtocol)
	}
	u := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	w := welcome{silence: time.Duration(u(0)) * time.Millisecond, open: u(1), window: u(2), direct: b[3*4] == 1, address: b[3*4+1:]}
	if w.silence <= 0 || w.open == 0 || w.open > 1<<16 || w.window == 0 || w.window > 1<<16 {
		return welcome{}, fmt.Errorf("welcome with a limit of zero or of absurd size: %w", errProtocol)
	}
	return w, nil
}
