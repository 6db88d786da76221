package requestplane

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/dynctl/dynctl/internal/protocol"
)

// Raw is an item or body that is already encoded. Send, Call and Recv pass it through
// unchanged, so that a forwarder need not decode it.
type Raw []byte

// Encode returns a body as it travels: msgpack, or nothing for nil.
func Encode(v any) ([]byte, error) { return encode(v) }

// encode returns v as msgpack; nil becomes an empty message.
func encode(v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case Raw:
		return v, nil
	}
	return protocol.Marshal(v)
}

// errItemLost is the error of an answer whose handler ignored a failed send.
var errItemLost = errors.New("an item of the answer could not be sent")

// encodeItem returns an item as msgpack, or ErrTooLarge.
func encodeItem(item any, limit int) ([]byte, error) {
	b, err := encode(item)
	if err != nil {
		return nil, err
	}
	if len(b)+1 > limit {
		return nil, fmt.Errorf("item of %d bytes, limit %d: %w", len(b), limit, ErrTooLarge)
	}
	return b, nil
}

// decode reads b into v, a pointer, or skips it if v is nil. The codec omits zero values,
// so decode zeroes *v first: a reused v must not keep values of an earlier message.
func decode(b []byte, v any) error {
	switch v := v.(type) {
	case nil:
		return nil
	case *Raw:
		*v = append((*v)[:0], b...)
		return nil
	}
	if rv := reflect.ValueOf(v); rv.Kind() == reflect.Pointer && !rv.IsNil() {
		rv.Elem().SetZero()
	}
	return protocol.Unmarshal(b, v)
}
