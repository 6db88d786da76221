package ucx

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// A frame is one active message. Its header, little-endian:
//
//	u8 kind, i8 status, u8 flags, u8 0, u32 sequence number, u64 id, u64 offset
//
// UCX may deliver a small message before a large one that was sent earlier; the
// sequence number of each direction of a connection puts them in order.
const headerBytes = 24

type kind uint8

const (
	kindHello      kind = iota + 1 // initiator, over the socket: who am I, whom do I want
	kindWelcome                    // target, over the socket: come in; body is the address of its end
	kindAccess                     // initiator: body is an access; answered by granted or result
	kindGranted                    // target: go ahead; body is keys of regions the peer has not got yet
	kindPull                       // initiator: send bytes of a granted read, from the offset on; body is how many
	kindData                       // either: bytes of an access, from the offset on
	kindForget                     // target: body is the descriptor of a region that is gone
	kindStop                       // target: end the access soon, its ticket is revoked
	kindDone                       // initiator: nothing is on its way any more; body is bytes moved, and a notification
	kindResult                     // target: the outcome; body is text
	kindNotify                     // initiator: body is a notification
	kindPing                       // initiator: are you there
	kindPong                       // target: yes
	kindProbe                      // initiator: lend me scratch memory
	kindProbeInfo                  // target: body is ticket and descriptor; answers a probe
	kindProbeClose                 // initiator: body is the ticket
	kindBye                        // either: orderly end; body says why
)

// Flags of done frames, and of access frames.
const (
	flagComplete = 1 // done: all bytes were moved
	flagNotify   = 2 // done: deliver what follows
	flagWrite    = 1 // access: a write, else a read
	flagDirect   = 2 // access: by the initiator's device; else the bytes come in messages
)

// errProtocol marks what a correct peer never sends.
var errProtocol = wire.ErrProtocol

type frame struct {
	kind   kind
	status nixl.Status
	flags  uint8
	id     uint64
	offset uint64 // of data in an access, all its pieces of memory taken as one stream
	body   []byte
}

func (f frame) header(b []byte, seq uint32) {
	b[0], b[1], b[2] = byte(f.kind), byte(f.status), f.flags
	binary.LittleEndian.PutUint32(b[4:], seq)
	binary.LittleEndian.PutUint64(b[8:], f.id)
	binary.LittleEndian.PutUint64(b[16:], f.offset)
}

// parseFrame reads a message. The body is not copied.
func parseFrame(header, body []byte) (f frame, seq uint32, err error) {
	if len(header) != headerBytes {
		return frame{}, 0, fmt.Errorf("message with a header of %d bytes: %w", len(header), errProtocol)
	}
	f = frame{
		kind: kind(header[0]), status: nixl.Status(header[1]), flags: header[2],
		id: binary.LittleEndian.Uint64(header[8:]), offset: binary.LittleEndian.Uint64(header[16:]), body: body,
	}
	return f, binary.LittleEndian.Uint32(header[4:]), nil
}

// order puts frames into the order in which they were sent.
type order struct {
	next  uint32
	ahead map[uint32]frame
}

// take returns the frames that are due after one has arrived.
func (o *order) take(f frame, seq uint32) ([]frame, error) {
	if seq != o.next {
		if _, twice := o.ahead[seq]; twice || seq-o.next > maxAhead {
			return nil, fmt.Errorf("message %d while %d is due: %w", seq, o.next, errProtocol)
		}
		if o.ahead == nil {
			o.ahead = map[uint32]frame{}
		}
		o.ahead[seq] = f
		return nil, nil
	}
	due := []frame{f}
	for o.next++; ; o.next++ {
		f, found := o.ahead[o.next]
		if !found {
			return due, nil
		}
		delete(o.ahead, o.next)
		due = append(due, f)
	}
}

func resultFrame(id uint64, err error) frame {
	f := frame{kind: kindResult, id: id}
	if err != nil {
		f.status = nixl.StatusOf(err)
		f.body = wire.Text(err)
	}
	return f
}

// grantedRegion holds the data that a peer needs to access a region.
type grantedRegion struct {
	base nixl.Desc
	addr uint64 // in the memory of the target's process
	key  []byte // of UCX
}

const maxKeyBytes = 4096

// encodeElsewhere begins a permit for a device: u32 count of descriptors and those that
// take the place of the asked ones, where host memory stands in for that of a device.
func encodeElsewhere(asked, where []nixl.Desc) []byte {
	if slices.Equal(asked, where) {
		where = nil
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(where)))
	for _, d := range where {
		b = wire.AppendDesc(b, d)
	}
	return b
}

func parseElsewhere(b []byte, asked []nixl.Desc) (where []nixl.Desc, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, fmt.Errorf("permit of %d bytes: %w", len(b), errProtocol)
	}
	n := int(binary.LittleEndian.Uint32(b))
	if b = b[4:]; n == 0 {
		return asked, b, nil
	}
	if n != len(asked) || len(b) < n*wire.DescBytes {
		return nil, nil, fmt.Errorf("permit for %d pieces of memory, %d were asked for: %w", n, len(asked), errProtocol)
	}
	if where, err = wire.Elsewhere(b, asked); err != nil {
		return nil, nil, err
	}
	return where, b[n*wire.DescBytes:], nil
}

func appendRegion(b []byte, r grantedRegion) []byte {
	b = wire.AppendDesc(b, r.base)
	b = binary.LittleEndian.AppendUint64(b, r.addr)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(r.key)))
	return append(b, r.key...)
}

func parseRegions(b []byte) (rs []grantedRegion, err error) {
	const head = wire.DescBytes + 8 + 2
	for len(b) > 0 {
		if len(b) < head {
			return nil, fmt.Errorf("truncated region: %w", errProtocol)
		}
		r := grantedRegion{base: wire.ParseDesc(b), addr: binary.LittleEndian.Uint64(b[wire.DescBytes:])}
		n := int(binary.LittleEndian.Uint16(b[wire.DescBytes+8:]))
		if n == 0 || n > maxKeyBytes || len(b)-head < n || !r.base.Covers(r.base) || r.addr > r.addr+r.base.Len {
			return nil, fmt.Errorf("region %s with a key of %d bytes: %w", r.base, n, errProtocol)
		}
		r.key = b[head : head+n]
		b = b[head+n:]
		rs = append(rs, r)
	}
	return rs, nil
}
