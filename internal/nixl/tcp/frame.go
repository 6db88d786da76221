package tcp

import (
	"encoding/binary"
	"fmt"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// A frame is a header of 24 bytes, little-endian, and a body:
//
//	u8 kind, i8 status, u16 0, u32 body length, u64 id, u64 arg
//
// The initiator numbers its parts and calls per connection; every frame about one
// carries its number, and numbers are never used twice.
const headerBytes = 24

type kind uint8

const (
	kindHello      kind = iota + 1 // initiator: who am I, whom do I mean; see hello.go
	kindWelcome                    // target: status and limits
	kindWrite                      // initiator: part of a write follows; body: access
	kindRead                       // initiator: wants a part of a read; body: access
	kindData                       // body: raw bytes of a part; arg: their offset in the part
	kindResult                     // target: the one answer to a write, read, notify or probe; body: why it failed; arg: the checksum of a read
	kindCommit                     // initiator: the part of a write is complete and valid; arg: its checksum
	kindAbort                      // initiator: no more data, or wants no more, of a part
	kindNotify                     // initiator: body is a notification; arg: its checksum
	kindPing                       // initiator: are you there
	kindPong                       // target: yes
	kindProbe                      // initiator: lend me scratch memory
	kindProbeInfo                  // target: body is ticket and descriptor; answers a probe
	kindProbeClose                 // initiator: body is the ticket
	kindBye                        // either: orderly end; body says why
)

type header struct {
	kind   kind
	status nixl.Status
	length uint32
	id     uint64
	arg    uint64
}

func (h header) append(b []byte) []byte {
	b = append(b, byte(h.kind), byte(h.status))
	b = append(b, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, h.length)
	b = binary.LittleEndian.AppendUint64(b, h.id)
	return binary.LittleEndian.AppendUint64(b, h.arg)
}

func parseHeader(b *[headerBytes]byte) header {
	return header{
		kind: kind(b[0]), status: nixl.Status(b[1]),
		length: binary.LittleEndian.Uint32(b[4:]),
		id:     binary.LittleEndian.Uint64(b[8:]),
		arg:    binary.LittleEndian.Uint64(b[16:]),
	}
}

// setArg changes the argument of an encoded frame.
func setArg(b []byte, arg uint64) { binary.LittleEndian.PutUint64(b[16:headerBytes], arg) }

// frame is a frame to be sent, without the raw bytes of data frames.
type frame struct {
	header
	body []byte
}

func (f frame) append(b []byte) []byte {
	f.length = uint32(len(f.body))
	return append(f.header.append(b), f.body...)
}

// access is the body of write and read frames:
//
//	ticket, u64 bytes, u32 count, count × (u64 address, u64 length, u64 device)
type access struct {
	ticket nixl.TicketID
	total  uint64
	descs  []nixl.Desc
}

const accessBytes = 16 + 8 + 4

func (a access) append(b []byte) []byte {
	b = append(b, a.ticket[:]...)
	b = binary.LittleEndian.AppendUint64(b, a.total)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(a.descs)))
	for _, d := range a.descs {
		b = wire.AppendDesc(b, d)
	}
	return b
}

// parseAccess decodes a body that has arrived; nothing is allocated for
// descriptors that are only claimed.
func parseAccess(b []byte) (access, error) {
	if len(b) < accessBytes {
		return access{}, fmt.Errorf("access of %d bytes: %w", len(b), errProtocol)
	}
	var a access
	copy(a.ticket[:], b)
	a.total = binary.LittleEndian.Uint64(b[16:])
	n := uint64(binary.LittleEndian.Uint32(b[24:]))
	b = b[accessBytes:]
	if n*wire.DescBytes != uint64(len(b)) {
		return access{}, fmt.Errorf("%d descriptors in %d bytes: %w", n, len(b), errProtocol)
	}
	descs, total, err := wire.ParseDescs(b)
	if err == nil && total != a.total {
		err = fmt.Errorf("descriptors do not sum up to %d bytes: %w", a.total, errProtocol)
	}
	if err != nil {
		return access{}, err
	}
	a.descs = descs
	return a, nil
}
