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
)

// The conversation, little-endian. Each side first sends a greeting (magic, nonce, name,
// incarnation), then the code of both greetings under the secret. From then on there are
// messages:
//
//	u32 body bytes, u8 kind, body, 32 bytes of HMAC-SHA-256 over side, number, kind and body
const (
	magic     = "DNXLEXC1"
	nonceLen  = 32
	tagLen    = sha256.Size
	maxText   = 512
	headerLen = 4 + 1

	// MinSecret is how long a secret must be, in bytes.
	MinSecret = 16
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
)

// limit is how long the body of a message may be.
func (k kind) limit() int {
	switch k {
	case kindLoad, kindBlob:
		return nixl.MaxMetadata
	case kindResult:
		return 1 + maxText
	}
	return 0
}

// errProtocol marks what a correct peer never sends.
var errProtocol = errors.New("protocol violation")

// greeting is what a side says first.
type greeting struct {
	nonce [nonceLen]byte
	from  nixl.Identity // name and incarnation
}

func (g greeting) encode() []byte {
	b := append([]byte(magic), g.nonce[:]...)
	for _, s := range []string{g.from.Name, g.from.Incarnation} {
		b = append(append(b, byte(len(s))), s...)
	}
	return b
}

func readGreeting(r io.Reader) (g greeting, raw []byte, err error) {
	var all bytes.Buffer
	tee := io.TeeReader(r, &all)
	var head [len(magic) + nonceLen]byte
	if _, err := io.ReadFull(tee, head[:]); err != nil {
		return g, nil, fmt.Errorf("read greeting: %w", err)
	}
	if string(head[:len(magic)]) != magic {
		return g, nil, fmt.Errorf("no greeting: %w", errProtocol)
	}
	copy(g.nonce[:], head[len(magic):])
	for _, s := range []*string{&g.from.Name, &g.from.Incarnation} {
		var n [1]byte
		if _, err := io.ReadFull(tee, n[:]); err != nil {
			return g, nil, fmt.Errorf("read greeting: %w", err)
		}
		b := make([]byte, n[0])
		if _, err := io.ReadFull(tee, b); err != nil {
			return g, nil, fmt.Errorf("read greeting: %w", err)
		}
		*s = string(b)
	}
	if g.from.Name == "" || g.from.Incarnation == "" {
		return g, nil, fmt.Errorf("greeting without a name: %w", errProtocol)
	}
	return g, all.Bytes(), nil
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
