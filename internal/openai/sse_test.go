package openai

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// all reads a stream to its end.
func all(t *testing.T, r io.Reader) ([]Event, error) {
	t.Helper()
	var out []Event
	for events := NewEvents(r); ; {
		ev, err := events.Next()
		if err != nil {
			return out, err
		}
		out = append(out, ev)
	}
}

func TestEvents(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []Event
	}{
		{"one", "data: a\n\n", []Event{{Data: "a"}}},
		{"one blank is taken off", "data:  a\n\ndata:b\n\n", []Event{{Data: " a"}, {Data: "b"}}},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []Event{{Data: "a"}, {Data: "b"}}},
		{"CR", "data: a\r\rdata: b\r\r", []Event{{Data: "a"}, {Data: "b"}}},
		{"mixed", "data: a\r\n\ndata: b\n\r\n", []Event{{Data: "a"}, {Data: "b"}}},
		{"lines are joined", "data: a\ndata\ndata: b\n\n", []Event{{Data: "a\n\nb"}}},
		{"name", "event: error\ndata: x\n\ndata: y\n\n", []Event{{Name: "error", Data: "x"}, {Data: "y"}}},
		{"comment", ": keep-alive\n\ndata: a\n\n", []Event{{Comment: true}, {Data: "a"}}},
		{"comment inside", "data: a\n: b\ndata: c\n\n", []Event{{Data: "a\nc"}}},
		{"other fields", "id: 7\nretry: 3\nx\ndata: a\n\n", []Event{{Data: "a"}}},
		{"no data, no event", "event: ping\n\n\n\ndata: a\n\n", []Event{{Data: "a"}}},
		{"byte order mark", "\ufeffdata: a\n\n", []Event{{Data: "a"}}},
		{"last line without an end", "data: a\n\ndata: [DONE]", []Event{{Data: "a"}, {Data: "[DONE]"}}},
		{"last event without an end", "data: a\n", []Event{{Data: "a"}}},
		{"empty data", "data\n\n", []Event{{}}},
		{"nothing", "", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for form, r := range map[string]io.Reader{"whole": strings.NewReader(tc.in), "in bytes": iotest.OneByteReader(strings.NewReader(tc.in))} {
				got, err := all(t, r)
				if !errors.Is(err, io.EOF) || !slices.Equal(got, tc.want) {
					t.Errorf("%s: got %+v, %v, want %+v", form, got, err, tc.want)
				}
			}
		})
	}
}

func TestEventsTooLong(t *testing.T) {
	line := "data: " + strings.Repeat("x", 1<<20) + "\n"
	for name, in := range map[string]string{"a line": "data: " + strings.Repeat("x", maxEvent+1), "many lines": strings.Repeat(line, 5)} {
		if _, err := all(t, strings.NewReader(in)); !errors.Is(err, errLongEvent) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A connection that breaks is not the end of a stream.
func TestEventsOfABrokenConnection(t *testing.T) {
	got, err := all(t, io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(io.ErrUnexpectedEOF)))
	if !errors.Is(err, io.ErrUnexpectedEOF) || !slices.Equal(got, []Event{{Data: "a"}}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("data: a\r\n\r\n: c\n\ndata: {\"x\":1}\n\n")
	f.Add("\ufeffevent: e\rdata\r\r")
	f.Fuzz(func(t *testing.T, in string) {
		whole, err := all(t, strings.NewReader(in))
		if !errors.Is(err, io.EOF) {
			t.Fatalf("%q: %v", in, err)
		}
		pieces, err := all(t, iotest.OneByteReader(strings.NewReader(in)))
		if !errors.Is(err, io.EOF) || !slices.Equal(whole, pieces) {
			t.Fatalf("%q: whole %+v, in bytes %+v, %v", in, whole, pieces, err)
		}
		for _, ev := range whole {
			if strings.ContainsRune(ev.Data, '\r') || strings.ContainsAny(ev.Name, "\r\n") {
				t.Fatalf("%q: %+v", in, ev)
			}
		}
	})
}
