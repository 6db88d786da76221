package protocol

import (
	"encoding/binary"
	"math"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Nearly all messages of an answer are tokens and nothing else. These two functions give the
// bytes of the library and read them, without its reflection; what has more is left to it.

const (
	keyTokenIDs = "token_ids"
	keyFinish   = "finish_reason"
)

// plainOutput returns v if it is an output without anything but tokens and a finish reason.
func plainOutput(v any) *EngineOutput {
	var o *EngineOutput
	switch v := v.(type) {
	case *EngineOutput:
		o = v
	case EngineOutput:
		o = &v
	}
	if o == nil || o.Error != "" || len(o.Finish) >= 32 || o.Logprobs != nil || o.PromptLogprobs != nil ||
		o.Timing != nil || o.Usage != nil || o.DecodeNS != 0 || o.Moved != nil || o.Params != nil || o.Raw != nil || o.Text != "" {
		return nil
	}
	return o
}

// appendPlain appends an output without anything but tokens and a finish reason.
func (o *EngineOutput) appendPlain(b []byte) []byte {
	fields := byte(0)
	if len(o.TokenIDs) > 0 {
		fields++
	}
	if o.Finish != "" {
		fields++
	}
	b = append(b, msgpcode.FixedMapLow|fields)
	if n := len(o.TokenIDs); n > 0 {
		b = appendText(b, keyTokenIDs)
		switch {
		case n < 16:
			b = append(b, msgpcode.FixedArrayLow|byte(n))
		case n <= math.MaxUint16:
			b = binary.BigEndian.AppendUint16(append(b, msgpcode.Array16), uint16(n))
		default:
			b = binary.BigEndian.AppendUint32(append(b, msgpcode.Array32), uint32(n)) // #nosec G115 -- messages are smaller
		}
		for _, id := range o.TokenIDs {
			b = appendNumber(b, uint64(id))
		}
	}
	if o.Finish != "" {
		b = appendText(appendText(b, keyFinish), string(o.Finish))
	}
	return b
}

// appendText appends a text of less than 32 bytes.
func appendText(b []byte, s string) []byte {
	return append(append(b, msgpcode.FixedStrLow|byte(len(s))), s...)
}

// readPlain decodes b into o if b has nothing but tokens and a finish reason, in the forms
// that appendPlain gives them. Otherwise it returns false and changes nothing.
func (o *EngineOutput) readPlain(b []byte) bool {
	if len(b) == 0 || b[0]&^0xf != msgpcode.FixedMapLow {
		return false
	}
	var ids []uint32
	var finish FinishReason
	fields := b[0] & 0xf
	for b = b[1:]; fields > 0; fields-- {
		key, rest, ok := cutText(b)
		if !ok {
			return false
		}
		switch string(key) {
		case keyTokenIDs:
			n := 0
			if n, b, ok = cutArray(rest); !ok {
				return false
			}
			ids = make([]uint32, n)
			read, size := readNumbers(ids, b)
			if read < n {
				return false
			}
			b = b[size:]
		case keyFinish:
			var text []byte
			if text, b, ok = cutText(rest); !ok || finish != "" {
				return false
			}
			finish = finishOf(text)
		default:
			return false
		}
	}
	if len(b) > 0 {
		return false
	}
	if ids != nil {
		o.TokenIDs = ids
	}
	if finish != "" {
		o.Finish = finish
	}
	return true
}

// finishOf returns a finish reason without allocating the known ones.
func finishOf(text []byte) FinishReason {
	for _, f := range [...]FinishReason{FinishLength, FinishStop} {
		if string(text) == string(f) {
			return f
		}
	}
	return FinishReason(text)
}

// cutText cuts a text of less than 32 bytes off the beginning of b.
func cutText(b []byte) (text, rest []byte, ok bool) {
	if len(b) == 0 || b[0]&^0x1f != msgpcode.FixedStrLow || int(b[0]&0x1f) >= len(b) {
		return nil, nil, false
	}
	end := 1 + int(b[0]&0x1f)
	return b[1:end], b[end:], true
}

// cutArray cuts the header of an array off the beginning of b. It returns false for arrays
// that cannot be in b.
func cutArray(b []byte) (n int, rest []byte, ok bool) {
	switch {
	case len(b) >= 1 && b[0]&^0xf == msgpcode.FixedArrayLow:
		n, rest = int(b[0]&0xf), b[1:]
	case len(b) >= 3 && b[0] == msgpcode.Array16:
		n, rest = int(binary.BigEndian.Uint16(b[1:])), b[3:]
	}
	return n, rest, rest != nil && n <= len(rest)
}
