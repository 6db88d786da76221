package ucx

import (
	"encoding/binary"

	"github.com/dynctl/dynctl/internal/nixl"
)

// messages moves bytes with active messages, where there is no device for one-sided
// access: writes are sent, reads are pulled, and the receiver copies.
type messages struct {
	x        *xfer
	next     uint64      // offset of what is to be posted
	out      []*outgoing // pieces of a write on their way, oldest first
	arrived  uint64      // of a read
	reported uint64      // of arrived, by landed
}

func (m *messages) post() (bool, error) {
	job, port := m.x.job, m.x.s.port
	n := min(job.Bytes-m.next, pieceBytes)
	if n == 0 {
		return false, nil
	}
	if job.Op == nixl.Read {
		port.send(frame{kind: kindPull, id: m.x.id, offset: m.next, body: binary.LittleEndian.AppendUint64(nil, n)})
	} else {
		o := &outgoing{bytes: n}
		m.out = append(m.out, o)
		port.stream(m.x.id, m.next, nixl.SliceSegments(job.Local, m.next, n), o)
	}
	m.next += n
	return true, nil
}

func (m *messages) landed() (bytes uint64, pieces int, err error) {
	if m.x.job.Op == nixl.Read {
		bytes, m.reported = m.arrived-m.reported, m.arrived
		if m.x.cause != nil || m.x.shut {
			return bytes, 0, nil // what still comes is not looked at
		}
		return bytes, int((m.next - m.arrived + pieceBytes - 1) / pieceBytes), nil
	}
	for len(m.out) > 0 && m.out[0].frames == 0 {
		bytes += m.out[0].bytes
		m.out = m.out[1:]
	}
	return bytes, len(m.out), nil
}

// data takes bytes of a read. It drops bytes that were not pulled.
func (m *messages) data(offset uint64, b []byte) {
	n := uint64(len(b))
	if m.x.job.Op != nixl.Read || m.x.cause != nil || m.x.shut || offset > m.next || n > m.next-offset || n > m.next-m.arrived {
		return
	}
	for _, seg := range nixl.SliceSegments(m.x.job.Local, offset, n) {
		b = b[copy(seg, b):]
	}
	m.arrived += n
}

func (m *messages) abandon() {}

// outgoing is memory that is being sent and must not change meanwhile.
type outgoing struct {
	bytes  uint64
	frames int    // that UCX has not sent
	sent   func() // called when it has sent them all; may be nil
}

// stream sends pieces of memory as data frames, from an offset of an access on. Short
// pieces are gathered.
func (p *port) stream(id, offset uint64, segs [][]byte, o *outgoing) {
	flush := func(body []byte) {
		o.frames++
		p.sendThen(frame{kind: kindData, id: id, offset: offset, body: body}, func() {
			if o.frames--; o.frames == 0 && o.sent != nil {
				o.sent()
			}
		})
		offset += uint64(len(body))
	}
	var gathered []byte
	for _, seg := range segs {
		for len(seg) > 0 {
			if len(gathered) == 0 && len(seg) >= gatherBytes {
				n := min(len(seg), chunkBytes)
				flush(seg[:n:n])
				seg = seg[n:]
				continue
			}
			if gathered == nil {
				gathered = make([]byte, 0, chunkBytes)
			}
			n := min(len(seg), chunkBytes-len(gathered))
			gathered = append(gathered, seg[:n]...)
			seg = seg[n:]
			if len(gathered) == chunkBytes {
				flush(gathered)
				gathered = nil
			}
		}
	}
	if len(gathered) > 0 {
		flush(gathered)
	}
}
