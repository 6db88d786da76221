//go:build linux

package fenced

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// Frames are a header of 16 bytes and a body, little-endian:
//
//	u8 kind, i8 status, u8 flags, u8 0, u32 body bytes, u64 id
const headerBytes = 16

type kind uint8

const (
	kindHello      kind = iota + 1 // initiator: who am I, whom do I want
	kindWelcome                    // target: come in; with the descriptor of the fences
	kindAccess                     // initiator: body is an access; answered by granted or result
	kindRegion                     // target: body is a region; with the descriptor of the memory if there is one
	kindForget                     // target: body is the address of a region that is gone
	kindGranted                    // target: go ahead; body is fence, generation and, if it is elsewhere, where the memory is
	kindDone                       // initiator: nobody is inside the fence any more; body is a notification
	kindResult                     // target: the outcome; body is text
	kindNotify                     // initiator: body is a notification
	kindPing                       // initiator: are you there
	kindPong                       // target: yes
	kindProbe                      // initiator: lend me scratch memory
	kindProbeInfo                  // target: body is ticket and descriptor; answers a probe
	kindProbeClose                 // initiator: body is the ticket
	kindBye                        // either: orderly end; body says why
	kindForgot                     // initiator: body is the address of a region that it has closed
)

// Flags of done frames, and of access frames.
const (
	flagComplete = 1 // done: all bytes were copied
	flagNotify   = 2 // done: deliver the body
	flagWrite    = 1 // access: a write, else a read
)

type header struct {
	kind   kind
	status nixl.Status
	flags  uint8
	length uint32
	id     uint64
}

func parseHeader(b *[headerBytes]byte) header {
	return header{
		kind: kind(b[0]), status: nixl.Status(b[1]), flags: b[2],
		length: binary.LittleEndian.Uint32(b[4:]), id: binary.LittleEndian.Uint64(b[8:]),
	}
}

// frame is a frame to be sent. fd, if not 0, is a descriptor that travels with it
// and is closed afterwards.
type frame struct {
	header
	body []byte
	fd   int
}

func (f frame) append(b []byte) []byte {
	b = append(b, byte(f.kind), byte(f.status), f.flags, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.body)))
	b = binary.LittleEndian.AppendUint64(b, f.id)
	return append(b, f.body...)
}

func resultFrame(id uint64, err error) frame {
	f := frame{header: header{kind: kindResult, id: id}}
	if err != nil {
		f.status = nixl.StatusOf(err)
		f.body = wire.Text(err)
	}
	return f
}

// encodeRegion makes the body of a region frame: its descriptor, its address in the
// target's process, and what the method says about it.
func encodeRegion(base nixl.Desc, addr uint64, note []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(wire.AppendDesc(nil, base), addr), note...)
}

func parseRegion(b []byte) (base nixl.Desc, addr uint64, note []byte, err error) {
	if len(b) < wire.DescBytes+8 || len(b) > wire.DescBytes+8+maxNote {
		return base, 0, nil, fmt.Errorf("region of %d bytes: %w", len(b), errProtocol)
	}
	base, addr = wire.ParseDesc(b), binary.LittleEndian.Uint64(b[wire.DescBytes:])
	if !base.Covers(base) || addr > math.MaxUint64-base.Len {
		return nixl.Desc{}, 0, nil, fmt.Errorf("region %s at %#x: %w", base, addr, errProtocol)
	}
	return base, addr, b[wire.DescBytes+8:], nil
}

// permit says which fence guards an access.
type permit struct{ slot, generation uint32 }

func (p permit) encode() []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, p.slot), p.generation)
}

// parsePermit reads a permit and where the memory is: as asked for, or the same
// lengths elsewhere.
func parsePermit(b []byte, slots int, asked []nixl.Desc) (p permit, where []nixl.Desc, err error) {
	if len(b) < 8 || (len(b) != 8 && len(b) != 8+wire.DescBytes*len(asked)) {
		return permit{}, nil, fmt.Errorf("permit of %d bytes for %d descriptors: %w", len(b), len(asked), errProtocol)
	}
	p = permit{binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])}
	if uint64(p.slot) >= uint64(slots) {
		return permit{}, nil, fmt.Errorf("permit for fence %d of %d: %w", p.slot, slots, errProtocol)
	}
	if len(b) == 8 {
		return p, asked, nil
	}
	if where, err = wire.Elsewhere(b[8:], asked); err != nil {
		return permit{}, nil, err
	}
	return p, where, nil
}
