package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/dynctl/dynctl/internal/nixl"
)

// Greeting is the start of a transport's hellos: u32 magic, u16 version, and the
// secret of the metadata.
type Greeting struct {
	Magic   uint32
	Version uint16
}

// Begin is the beginning of a hello.
func (g Greeting) Begin(token Secret) []byte {
	b := binary.LittleEndian.AppendUint32(nil, g.Magic)
	b = binary.LittleEndian.AppendUint16(b, g.Version)
	return append(b, token[:]...)
}

// Take reads what Begin has made, and returns the rest, which has least bytes or more.
func (g Greeting) Take(b []byte, least int) (token Secret, rest []byte, err error) {
	if len(b) < 4+2+len(token)+least || binary.LittleEndian.Uint32(b) != g.Magic {
		return token, nil, fmt.Errorf("no hello: %w", ErrProtocol)
	}
	if v := binary.LittleEndian.Uint16(b[4:]); v != g.Version {
		return token, nil, fmt.Errorf("hello of version %d, want %d: %w", v, g.Version, nixl.ErrMismatch)
	}
	b = b[4+2:]
	return token, b[copy(token[:], b):], nil
}

// TakeEndsOnly reads ends behind which there is nothing.
func TakeEndsOnly(b []byte) (Ends, error) {
	e, rest, err := TakeEnds(b)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("malformed hello with %d bytes too many: %w", len(rest), ErrProtocol)
	}
	return e, err
}

// Admit reports why a target does not let an initiator in: it has not read the metadata
// that say own, or means another agent.
func Admit(token, own Secret, ends Ends, self nixl.Identity) error {
	if !token.Equal(own) {
		return fmt.Errorf("wrong secret: %w", nixl.ErrNotAllowed)
	}
	return ends.Check(self)
}
