package requestplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/dynctl/dynctl/internal/protocol"
)

// A frame is a u32 big-endian length, which counts what follows it, a type byte
// and a payload. A stream carries one request frame from the caller, and possibly a stop
// frame, then any number of items and one end or error frame from the server.
const (
	frameRequest byte = 1 // u32 header length, header, body
	frameItem    byte = 2 // one encoded item
	frameEnd     byte = 3 // the final marker: the answer is complete
	frameError   byte = 4 // an encoded RemoteError; also final
	frameStop    byte = 5 // from the caller, empty: the handler may end with what it has
)

const (
	frameOverhead = 5         // length and type
	maxHeader     = 128 << 10 // bytes of an encoded request header, as in Dynamo
	readChunk     = 4 << 10   // first read buffer of a stream
	keepChunk     = 64 << 10  // larger buffers are released when empty
)

// errFrame is returned when the peer sends a malformed frame.
var errFrame = errors.New("malformed frame")

// requestHeader precedes the body in a request frame.
type requestHeader struct {
	ID      string            `json:"id"`
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"`
	// Timeout is the time left until the caller's deadline, 0 for none. It is a
	// duration, not a time, because the clocks of two nodes differ.
	Timeout time.Duration `json:"timeout_ns"`
}

// appendFrame appends one frame to dst.
func appendFrame(dst []byte, typ byte, payload []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(payload)+1))
	dst = append(dst, typ)
	return append(dst, payload...)
}

// encodeRequest returns a whole request frame, or ErrTooLarge.
func encodeRequest(h requestHeader, body any, limit int) ([]byte, error) {
	hb, err := protocol.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("request header: %w", err)
	}
	if len(hb) > maxHeader {
		return nil, fmt.Errorf("request header of %d bytes, limit %d: %w", len(hb), maxHeader, ErrTooLarge)
	}
	bb, err := encode(body)
	if err != nil {
		return nil, fmt.Errorf("request body: %w", err)
	}
	n := 1 + 4 + len(hb) + len(bb)
	if n > limit {
		return nil, fmt.Errorf("request of %d bytes, limit %d: %w", n, limit, ErrTooLarge)
	}
	f := make([]byte, 0, 4+n)
	f = binary.BigEndian.AppendUint32(f, uint32(n))
	f = append(f, frameRequest)
	f = binary.BigEndian.AppendUint32(f, uint32(len(hb)))
	f = append(f, hb...)
	return append(f, bb...), nil
}

// decodeRequest reads the payload of a request frame. The body aliases it.
func decodeRequest(p []byte) (h requestHeader, body []byte, err error) {
	if len(p) < 4 {
		return h, nil, fmt.Errorf("request of %d bytes: %w", len(p), errFrame)
	}
	n := binary.BigEndian.Uint32(p)
	p = p[4:]
	if n > maxHeader || int(n) > len(p) {
		return h, nil, fmt.Errorf("request header of %d bytes in a message of %d: %w", n, len(p), errFrame)
	}
	if err := protocol.Unmarshal(p[:n], &h); err != nil {
		return h, nil, fmt.Errorf("request header: %w", err)
	}
	if h.Timeout < 0 {
		h.Timeout = 1 // the deadline has passed
	}
	return h, p[n:], nil
}

// encodeError returns the payload of an error frame. Messages are cut to a length
// that fits any frame limit.
func encodeError(e *RemoteError) []byte {
	const longest = 4 << 10
	c := *e
	if len(c.Message) > longest {
		c.Message = c.Message[:longest]
	}
	b, err := protocol.Marshal(wireError(c))
	if err != nil { // cannot happen: two strings always encode
		return nil
	}
	return b
}

type wireError struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"`
}

// decodeError reads the payload of an error frame. Even a malformed payload yields an
// error of the other side.
func decodeError(p []byte) *RemoteError {
	var w wireError
	if err := protocol.Unmarshal(p, &w); err != nil || w.Kind == "" {
		return &RemoteError{Kind: KindInternal, Message: "unreadable error message"}
	}
	return &RemoteError{Kind: w.Kind, Message: w.Message}
}

// frameReader splits a byte stream into frames. It keeps partial frames across failed
// reads, so that a read deadline loses nothing. Its buffer grows only with received
// bytes, never with an announced length.
type frameReader struct {
	src   io.Reader
	limit int // of a frame's length field
	buf   []byte
	r, w  int // unread bytes are buf[r:w]
}

// buffered returns the next frame if all of it was received. The payload is valid until
// the next call of fill.
func (f *frameReader) buffered() (typ byte, payload []byte, ok bool, err error) {
	if !f.whole() {
		return 0, nil, false, nil
	}
	n, err := f.frameLen()
	if err != nil {
		return 0, nil, false, err
	}
	p := f.buf[f.r+4 : f.r+4+n]
	f.r += 4 + n
	return p[0], p[1:], true, nil
}

// whole reports whether all of the next frame was received, or enough to see that it is
// malformed.
func (f *frameReader) whole() bool {
	if f.w-f.r < 4 {
		return false
	}
	n, err := f.frameLen()
	return err != nil || f.w-f.r >= 4+n
}

// frameLen returns the length field of the frame at r, after checking it.
func (f *frameReader) frameLen() (int, error) {
	n := binary.BigEndian.Uint32(f.buf[f.r:])
	if n < 1 || uint64(n) > uint64(min(f.limit, math.MaxInt32)) {
		return 0, fmt.Errorf("length %d, limit %d: %w", n, f.limit, errFrame)
	}
	return int(n), nil
}

// fill reads once from the source. An error with no bytes is returned as it is.
func (f *frameReader) fill() error {
	if f.r == f.w {
		f.r, f.w = 0, 0
		if len(f.buf) > keepChunk {
			f.buf = nil
		}
	}
	if f.w == len(f.buf) {
		if f.r > 0 {
			f.w = copy(f.buf, f.buf[f.r:f.w])
			f.r = 0
		} else {
			f.grow()
		}
	}
	n, err := f.src.Read(f.buf[f.w:])
	f.w += n
	if n > 0 {
		return nil
	}
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}

// grow makes room for more of the frame at the start of the buffer. It doubles the size,
// but not beyond the end of that frame.
func (f *frameReader) grow() {
	size := max(readChunk, 2*len(f.buf))
	if f.w >= 4 {
		if n, err := f.frameLen(); err == nil {
			size = max(min(size, 4+n), f.w+1)
		}
	}
	buf := make([]byte, size)
	f.w = copy(buf, f.buf[f.r:f.w])
	f.r, f.buf = 0, buf
}

// rest returns a copy of what was received after the frames that were taken.
func (f *frameReader) rest() []byte { return append([]byte(nil), f.buf[f.r:f.w]...) }

// next waits for a frame.
func (f *frameReader) next() (typ byte, payload []byte, err error) {
	for {
		typ, payload, ok, err := f.buffered()
		if ok || err != nil {
			return typ, payload, err
		}
		if err := f.fill(); err != nil {
			if errors.Is(err, io.EOF) && f.w > f.r {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
	}
}

// skip reads the current frame to its end, whatever its length, and discards it. A frame
// that was already returned counts as skipped.
func (f *frameReader) skip() error {
	for f.w-f.r < 4 {
		if f.r > 0 && f.w == f.r {
			return nil
		}
		if err := f.fill(); err != nil {
			return err
		}
	}
	left := 4 + int64(binary.BigEndian.Uint32(f.buf[f.r:])) - int64(f.w-f.r)
	f.r, f.w = 0, 0
	for left > 0 {
		n, err := f.src.Read(f.buf)
		left -= int64(n)
		if err != nil && left > 0 {
			return err
		}
	}
	return nil
}
