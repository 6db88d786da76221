package events

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/protocol"
)

// errEnvelope is returned for a message that is not an event.
var errEnvelope = errors.New("not an event envelope")

// envelope is the msgpack map around each event.
type envelope struct {
	PublisherID uint64  `json:"publisher_id"`
	Sequence    uint64  `json:"sequence"`
	PublishedAt uint64  `json:"published_at"` // Unix milliseconds
	Topic       *string `json:"topic"`        // a pointer tells absent from empty
	Payload     []byte  `json:"payload"`
}

// encodeEnvelope writes all five fields. The general codec omits zero values, but other
// readers of this map expect every field.
func encodeEnvelope(publisher, sequence uint64, at time.Time, topic string, payload []byte) []byte {
	b := make([]byte, 0, 96+len(topic)+len(payload))
	b = append(b, 0x80|5) // map of five
	b = appendUint(appendString(b, "publisher_id"), publisher)
	b = appendUint(appendString(b, "sequence"), sequence)
	b = appendUint(appendString(b, "published_at"), uint64(at.UnixMilli()))
	b = appendString(appendString(b, "topic"), topic)
	b = appendString(b, "payload")
	b = append(b, 0xc6) // bin 32
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

func appendUint(b []byte, v uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0xcf), v)
}

func appendString(b []byte, s string) []byte {
	if len(s) < 32 {
		return append(append(b, 0xa0|byte(len(s))), s...)
	}
	return append(binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(len(s))), s...)
}

// decodeEnvelope decodes a message that arrived on subject.
func decodeEnvelope(subject string, b []byte) (Event, error) {
	var e envelope
	if err := protocol.Unmarshal(b, &e); err != nil {
		return Event{}, fmt.Errorf("%w: %w", errEnvelope, err)
	}
	if e.Topic == nil {
		return Event{}, fmt.Errorf("%w: no topic", errEnvelope)
	}
	return Event{
		Subject:     subject,
		Topic:       *e.Topic,
		PublisherID: e.PublisherID,
		Sequence:    e.Sequence,
		PublishedAt: time.UnixMilli(int64(e.PublishedAt)),
		Payload:     e.Payload,
	}, nil
}
