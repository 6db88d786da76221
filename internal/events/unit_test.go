package events

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dynctl/dynctl/internal/protocol"
)

// Readers of the envelope, ours and others, find all five fields even when they
// are zero.
func TestEnvelopeFields(t *testing.T) {
	for _, seq := range []uint64{0, 1, math.MaxUint64} {
		for _, topic := range []string{"", "kv-events", string(bytes.Repeat([]byte{'t'}, 40))} {
			b := encodeEnvelope(seq, seq, time.UnixMilli(0), topic, nil)
			var m map[string]any
			if err := protocol.Unmarshal(b, &m); err != nil {
				t.Fatal(err)
			}
			for _, k := range []string{"publisher_id", "sequence", "published_at", "topic", "payload"} {
				if _, ok := m[k]; !ok {
					t.Errorf("no %s in %v", k, m)
				}
			}
			e, err := decodeEnvelope("s", b)
			if err != nil || e.Sequence != seq || e.PublisherID != seq || e.Topic != topic || len(e.Payload) != 0 {
				t.Errorf("decoded %+v, %v", e, err)
			}
		}
	}
}

func FuzzEnvelope(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0x85})
	f.Add(encodeEnvelope(1, 2, time.UnixMilli(3), "topic", []byte{0xc0}))
	f.Add([]byte("\x81\xa7payload\xc6\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeEnvelope("a.b", b)
		if err != nil {
			return
		}
		if len(e.Payload) > len(b) {
			t.Errorf("payload of %d bytes from %d", len(e.Payload), len(b))
		}
		again, err := decodeEnvelope("a.b", encodeEnvelope(e.PublisherID, e.Sequence, e.PublishedAt, e.Topic, e.Payload))
		if err != nil || again.PublisherID != e.PublisherID || again.Sequence != e.Sequence || again.Topic != e.Topic || !bytes.Equal(again.Payload, e.Payload) {
			t.Errorf("%+v became %+v, %v", e, again, err)
		}
		var v any
		e.Decode(&v)
	})
}

func TestMatches(t *testing.T) {
	tests := []struct {
		pattern, subject string
		want             bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"a", "a.b", false},
		{"a.b", "a", false},
		{"*", "a", true},
		{"*", "a.b", false},
		{"a.*", "a.b", true},
		{"a.*", "a", false},
		{"*.b", "a.b", true},
		{"a.*.c", "a.b.c", true},
		{"a.*.c", "a.b.d", false},
		{">", "a.b.c", true},
		{"a.>", "a.b.c", true},
		{"a.>", "a", false},
		{"a.b.>", "a.c.d", false},
	}
	for _, test := range tests {
		if got := matches(test.pattern, test.subject); got != test.want {
			t.Errorf("matches(%q, %q) = %v", test.pattern, test.subject, got)
		}
	}
}

func TestGapCounter(t *testing.T) {
	now := time.Unix(0, 0)
	g := make(gapCounter)
	tests := []struct{ publisher, sequence, want uint64 }{
		{1, 5, 0}, // joined late
		{1, 6, 0},
		{1, 9, 2},
		{1, 8, 0}, // a duplicate
		{1, 10, 0},
		{2, 0, 0},
		{1, 11, 0},
		{2, 1, 0},
	}
	for i, test := range tests {
		if got := g.missed(test.publisher, test.sequence, now); got != test.want {
			t.Errorf("step %d: missed = %d, want %d", i, got, test.want)
		}
	}
	for i := range uint64(3 * maxPublishers) { // publishers that come and go
		g.missed(100+i, 0, now)
		if len(g) > maxPublishers {
			t.Fatalf("%d publishers remembered", len(g))
		}
	}
	g.missed(7, 0, now)
	later := now.Add(2 * publisherMemory)
	g.missed(8, 0, later)
	g.forget(later)
	if len(g) != 1 || g.missed(8, 2, later) != 1 {
		t.Errorf("%d publishers left, want the one that spoke lately", len(g))
	}
}

func TestSentIDs(t *testing.T) {
	s := sentIDs{max: 3}
	for i, id := range []string{"a", "b", "a", "c", "d"} { // the first "a" and "b" fall out
		s.put(id, uint64(i+1))
	}
	for id, want := range map[string]uint64{"a": 3, "b": 0, "c": 4, "d": 5} {
		got, ok := s.take(id)
		if got != want || ok != (want != 0) {
			t.Errorf("take(%s) = %d, %v, want %d", id, got, ok, want)
		}
	}
	if len(s.seqs) != 0 {
		t.Errorf("left: %v", s.seqs)
	}
}

func TestClassify(t *testing.T) {
	status := func(code, text string) *nats.Msg {
		m := nats.NewMsg("inbox")
		m.Header.Set("Status", code)
		m.Header.Set("Description", text)
		return m
	}
	work := nats.NewMsg("inbox")
	work.Header.Set(nats.MsgIdHdr, "id")
	other := errors.New("any other error")
	tests := []struct {
		name string
		msg  *nats.Msg
		want error // other: an error that is none of the rest; nil: no error
		work bool
	}{
		{"work", &nats.Msg{Data: []byte("x")}, nil, true},
		{"work without a body", work, nil, true},
		{"sign of life", status("100", "Idle Heartbeat"), nil, false},
		{"nobody there", status("503", ""), nats.ErrNoResponders, false},
		{"consumer deleted", status("409", "Consumer Deleted"), jetstream.ErrConsumerDeleted, false},
		{"expired", status("408", "Request Timeout"), errRequestOver, false},
		{"nothing", status("404", "No Messages"), errRequestOver, false},
		{"shutdown", status("409", "Server Shutdown"), other, false},
		{"bad request", status("400", "Bad Request"), other, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := classify(test.msg)
			if (r.msg != nil) != test.work {
				t.Errorf("message = %v", r.msg)
			}
			if test.want == other && (r.err == nil || missing(r.err) || errors.Is(r.err, errRequestOver)) || test.want != other && !errors.Is(r.err, test.want) {
				t.Errorf("error = %v, want %v", r.err, test.want)
			}
		})
	}
}

// What a server delivers again is recognized while it is in work and for a while
// after it was acknowledged; what was given back is new.
func TestHandling(t *testing.T) {
	q := &JetStreamQueue{inWork: make(map[messageKey]handling)}
	want := func(k messageKey, h handling) {
		t.Helper()
		if got := q.begin(k); got != h {
			t.Errorf("begin(%v) = %v, want %v", k, got, h)
		}
	}
	a, b := messageKey{1, 100}, messageKey{1, 200} // the same place in a stream made anew
	want(a, unknown)
	want(a, beingHandled)
	want(b, unknown)
	q.end(b)
	want(b, unknown)
	q.acknowledged(a)
	q.end(a)
	want(a, justDone)
	for i := range 2 * maxDone {
		k := messageKey{uint64(i), 300}
		want(k, unknown)
		q.acknowledged(k)
		q.end(k)
	}
	if len(q.inWork) > maxDone+1 || len(q.done) > maxDone {
		t.Errorf("%d messages remembered", len(q.inWork))
	}
	want(a, unknown) // long ago
}
