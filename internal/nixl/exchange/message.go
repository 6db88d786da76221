package exchange

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// The conversation, little-endian. Each side sends messages, a hello first:
//
//	u32 body bytes, u8 kind, body, 32 bytes of HMAC-SHA-256 over side, number, kind and body
//
// under the key of the handshake that began the connection.
const (
	tagLen    = sha256.Size
	maxText   = 512
	maxHello  = 1024
	headerLen = 4 + 1

	// maxRequests bounds what one connection asks for.
	maxRequests = 64
)

type kind uint8

const (
	kindLoad   kind = iota + 1 // body: the sender's blob
	kindSend                   // no body
	kindInvl                   // no body
	kindBlob                   // answer to send
	kindResult                 // answer to the others, or an error; body: i8 status, text
	kindHello                  // of both sides; body: name, incarnation
)

// limit is how long the body of a message may be.
func (k kind) limit() int {
	switch k {
	case kindLoad, kindBlob:
		return nixl.MaxMetadata
	case kindResult:
		return 1 + maxText
	case kindHello:
		return maxHello
	}
	return 0
}

// errProtocol marks what a correct peer never sends.
var errProtocol = errors.New("protocol violation")

// encodeHello says who speaks.
func encodeHello(from nixl.Identity) []byte {
	return wire.AppendString(wire.AppendString(nil, from.Name), from.Incarnation)
}

func parseHello(b []byte) (from nixl.Identity, err error) {
	rest, ok := wire.TakeStrings(b, &from.Name, &from.Incarnation)
	if !ok || len(rest) > 0 || from.Name == "" || from.Incarnation == "" {
		return nixl.Identity{}, fmt.Errorf("hello of %d bytes: %w", len(b), errProtocol)
	}
	return from, nil
}

// hello receives the other side's first message.
func (c *channel) hello() (nixl.Identity, error) {
	k, body, err := c.receive()
	switch {
	case err != nil:
		return nixl.Identity{}, fmt.Errorf("read hello: %w", err)
	case k != kindHello:
		return nixl.Identity{}, fmt.Errorf("message of kind %d instead of a hello: %w", k, errProtocol)
	}
	return parseHello(body)
}

// Sides of the conversation, as they enter codes: nothing can be sent back.
const (
	sideClient = "client"
	sideServer = "server"
)

func code(key []byte, parts ...[]byte) []byte {
	m := hmac.New(sha256.New, key)
	for _, p := range parts {
		m.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(p))))
		m.Write(p)
	}
	return m.Sum(nil)
}

// channel sends and receives messages under the key of a connection.
type channel struct {
	rw         io.ReadWriter
	key        []byte
	own, other string // sides
	sent, got  uint64
}

func (c *channel) code(side string, number uint64, k kind, body []byte) []byte {
	return code(c.key, []byte(side), binary.LittleEndian.AppendUint64(nil, number), []byte{byte(k)}, body)
}

func (c *channel) send(k kind, body []byte) error {
	b := make([]byte, 0, headerLen+len(body)+tagLen)
	b = append(binary.LittleEndian.AppendUint32(b, uint32(len(body))), byte(k))
	b = append(b, body...)
	b = append(b, c.code(c.own, c.sent, k, body)...)
	c.sent++
	_, err := c.rw.Write(b)
	return err
}

// receive returns the next message; io.EOF at the end of the conversation. Memory grows
// with what has arrived, not with what is claimed.
func (c *channel) receive() (kind, []byte, error) {
	var h [headerLen]byte
	if _, err := io.ReadFull(c.rw, h[:]); err != nil {
		return 0, nil, err
	}
	n, k := binary.LittleEndian.Uint32(h[:]), kind(h[4])
	if uint64(n) > uint64(k.limit()) {
		return 0, nil, fmt.Errorf("message of kind %d has %d bytes, at most %d: %w", k, n, k.limit(), errProtocol)
	}
	var body bytes.Buffer
	if _, err := io.CopyN(&body, c.rw, int64(n)); err != nil {
		return 0, nil, fmt.Errorf("read message: %w", err)
	}
	var tag [tagLen]byte
	if _, err := io.ReadFull(c.rw, tag[:]); err != nil {
		return 0, nil, fmt.Errorf("read message: %w", err)
	}
	if !hmac.Equal(tag[:], c.code(c.other, c.got, k, body.Bytes())) {
		return 0, nil, fmt.Errorf("message with a wrong code: %w", nixl.ErrNotAllowed)
	}
	c.got++
	return k, body.Bytes(), nil
}

func encodeResult(err error) []byte {
	if err == nil {
		return []byte{0}
	}
	text := err.Error()
	return append([]byte{byte(nixl.StatusOf(err))}, text[:min(len(text), maxText)]...)
}

// decodeResult returns the error that a peer reports: success or an error, nothing else.
func decodeResult(body []byte) error {
	if len(body) == 0 {
		return fmt.Errorf("empty result: %w", errProtocol)
	}
	st := nixl.Status(body[0])
	switch {
	case st == nixl.Success:
		return nil
	case st > 0 || st < nixl.ErrNoTelemetry:
		st = nixl.ErrUnknown
	}
	text := strconv.QuoteToASCII(string(body[1:]))
	return fmt.Errorf("peer says: %s: %w", text[1:len(text)-1], st)
}
