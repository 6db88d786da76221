package protocol

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
)

// ContentType names the codec in registrations.
const ContentType = "msgpack"

var encoders = sync.Pool{New: func() any {
	e := msgpack.NewEncoder(nil)
	return e
}}

// Marshal encodes v as msgpack, with the names of its json tags.
func Marshal(v any) ([]byte, error) {
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

// Unmarshal decodes msgpack into v, a pointer. Unknown fields are ignored.
func Unmarshal(b []byte, v any) error {
	d := msgpack.NewDecoder(bytes.NewReader(b))
	d.SetCustomStructTag("json")
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("decode %T: %w", v, err)
	}
	return nil
}
