package protocol

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
)

// ContentType names the codec in registrations.
const ContentType = "msgpack"

// encoder is an encoder of the library, and what it writes to.
type encoder struct {
	*msgpack.Encoder
	buf bytes.Buffer
}

// keptBuffer bounds the memory that an encoder keeps for the next message.
const keptBuffer = 64 << 10

var encoders = sync.Pool{New: func() any { return &encoder{Encoder: msgpack.NewEncoder(nil)} }}

// Marshal encodes v as msgpack, with the names of its json tags. It omits fields with
// zero values, also in nested structs. A type with unexported fields must have an IsZero
// method for that.
func Marshal(v any) ([]byte, error) {
	if o := plainOutput(v); o != nil {
		return o.appendPlain(make([]byte, 0, 48)), nil
	}
	return marshal(v)
}

// marshal encodes v field by field, and by the library what is no struct.
func marshal(v any) ([]byte, error) {
	s := reflect.ValueOf(v)
	if s.Kind() == reflect.Pointer {
		s = s.Elem()
	}
	if s.Kind() == reflect.Struct {
		if l := layoutOf(s.Type()); l != nil {
			return write(v, func(e *msgpack.Encoder) error { return l.encode(e, s) })
		}
	}
	return byLibrary(v)
}

func byLibrary(v any) ([]byte, error) {
	return write(v, func(e *msgpack.Encoder) error { return e.Encode(v) })
}

// write returns what encode writes.
func write(v any, encode func(*msgpack.Encoder) error) ([]byte, error) {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	if e.buf.Cap() > keptBuffer {
		e.buf = bytes.Buffer{}
	}
	e.buf.Reset()
	e.Reset(&e.buf)
	e.SetCustomStructTag("json")
	e.UseCompactInts(true)
	e.SetOmitEmpty(true)
	if err := encode(e.Encoder); err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return bytes.Clone(e.buf.Bytes()), nil
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
