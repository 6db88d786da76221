package protocol

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
)

// ContentType names the codec in registrations.
const ContentType = "msgpack"

var encoders = sync.Pool{New: func() any {
	e := msgpack.NewEncoder(nil)
	return e
}}

// Marshal encodes v as msgpack, with the names of its json tags. It omits fields with
// zero values, also in nested structs. A type with unexported fields must have an IsZero
// method for that.
func Marshal(v any) ([]byte, error) {
	if o := plainOutput(v); o != nil {
		return o.appendPlain(make([]byte, 0, 48)), nil
	}
	return marshal(v)
}

// marshal encodes v by the library.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := encoders.Get().(*msgpack.Encoder)
	defer encoders.Put(e)
	e.Reset(&buf)
	e.SetCustomStructTag("json")
	e.UseCompactInts(true)
	e.SetOmitEmpty(true)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return buf.Bytes(), nil
}

// message is what a decoder reads. Lists of numbers are read from b in one go.
type message struct {
	bytes.Reader
	b []byte
}

// rest returns what the decoder has not read yet.
func (m *message) rest() []byte { return m.b[len(m.b)-m.Len():] }

// skip passes over n bytes of the rest.
func (m *message) skip(n int) { _, _ = m.Seek(int64(n), io.SeekCurrent) } // never before the beginning, so it cannot fail

// Unmarshal decodes exactly one msgpack value into v, a pointer. Unknown fields are
// ignored; fields that b does not mention keep what they have.
func Unmarshal(b []byte, v any) error {
	if o, ok := v.(*EngineOutput); ok && o != nil && o.readPlain(b) {
		return nil
	}
	return unmarshal(b, v)
}

// unmarshal decodes b by the library.
func unmarshal(b []byte, v any) (err error) {
	if err := wellFormed(b); err != nil {
		return fmt.Errorf("decode %T: %w", v, err)
	}
	// The library panics on some values that do not fit, such as nil for a time.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("decode %T: %w: %v", v, ErrValue, r)
		}
	}()
	m := &message{b: b}
	m.Reset(b)
	d := msgpack.NewDecoder(m)
	d.SetCustomStructTag("json")
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("decode %T: %w", v, err)
	}
	return nil
}
