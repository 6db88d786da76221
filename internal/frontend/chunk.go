package frontend

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// chunks encodes the events of one stream. It encodes the parts that all events share
// only once, because there is one event per token.
type chunks struct {
	head string // up to the first choice
	tail string // after the choice
}

// newChunks makes the frame of the events of a stream. With usage, every event has the
// field usage, null until the last one, as in OpenAI's streams.
func newChunks(id, object, model string, created int64, usage bool) chunks {
	head := []byte(`data: {"id":`)
	head = appendString(head, id)
	head = append(head, `,"object":`...)
	head = appendString(head, object)
	head = append(head, `,"created":`...)
	head = strconv.AppendInt(head, created, 10)
	head = append(head, `,"model":`...)
	head = appendString(head, model)
	head = append(head, `,"system_fingerprint":null,"choices":[`...)
	tail := "]}\n\n"
	if usage {
		tail = `],"usage":null}` + "\n\n"
	}
	return chunks{head: string(head), tail: tail}
}

// open begins an event with one choice, whose members follow.
func (c *chunks) open(dst []byte, index int) []byte {
	dst = append(dst, c.head...)
	dst = append(dst, `{"index":`...)
	return strconv.AppendInt(dst, int64(index), 10)
}

// close ends a choice without log probabilities, and the event, as end does.
func (c *chunks) close(dst []byte, finish string) []byte {
	return c.end(append(dst, `,"logprobs":null`...), finish)
}

// end ends the choice, with its finish reason if it has one, and the event.
func (c *chunks) end(dst []byte, finish string) []byte {
	dst = append(dst, `,"finish_reason":`...)
	if finish == "" {
		dst = append(dst, "null"...)
	} else {
		dst = appendString(dst, finish)
	}
	dst = append(dst, '}')
	return append(dst, c.tail...)
}

// last returns the event without choices, with the token counts, the extension, or both.
func (c *chunks) last(u *usage, e *extension) []byte {
	b, err := json.Marshal(struct {
		Usage *usage     `json:"usage,omitempty"`
		NVExt *extension `json:"nvext,omitempty"`
	}{u, e})
	if err != nil { // numbers and texts always encode
		return nil
	}
	dst := append([]byte(c.head), "],"...)
	return append(append(dst, b[1:]...), "\n\n"...)
}

// answerBody is the body of a non-streamed answer.
type answerBody[choice any] struct {
	ID                string   `json:"id"`
	Object            string   `json:"object"`
	Created           int64    `json:"created"`
	Model             string   `json:"model"`
	SystemFingerprint *string  `json:"system_fingerprint"`
	Choices           []choice `json:"choices"`
	Usage             usage    `json:"usage"`

	NVExt *extension `json:"nvext,omitempty"`
}

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0 // what lies between from and i is copied as it is
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			dst = append(dst, s[from:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, `\n`...)
			case '\t':
				dst = append(dst, `\t`...)
			case '\r':
				dst = append(dst, `\r`...)
			default:
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			from = i
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			dst = append(append(dst, s[from:i]...), "\ufffd"...)
			from = i + 1
		}
		i += n
	}
	return append(append(dst, s[from:]...), '"')
}
