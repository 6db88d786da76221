package openai

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxEvent is the maximum size of one server-sent event, in bytes.
const maxEvent = 4 << 20

// errLongEvent is returned when an event exceeds maxEvent.
var errLongEvent = fmt.Errorf("an event is longer than %d bytes", maxEvent)

// Event is one server-sent event.
type Event struct {
	Name string // empty for "message" events
	Data string // lines are joined by line feeds
	// Comment is set for a comment, which only shows that the server is alive.
	Comment bool
}

// Events reads a stream of server-sent events as the HTML standard defines it: lines
// end with LF, CR or both, in whatever pieces they arrive.
type Events struct {
	r     *bufio.Reader
	begun bool
	cr    bool // the last line ended with CR: a following LF belongs to it
	line  []byte
}

// NewEvents returns a reader of the events in r.
func NewEvents(r io.Reader) *Events { return &Events{r: bufio.NewReaderSize(r, 16<<10)} }

// Next returns the next event with data, or the next comment. At the end of the stream it
// returns io.EOF, after an event that lacked only its final empty line.
func (e *Events) Next() (Event, error) {
	var ev Event
	var data []string
	size := 0
	for {
		err := e.readLine()
		if err != nil && (!errors.Is(err, io.EOF) || len(e.line) == 0) {
			if errors.Is(err, io.EOF) && data != nil {
				ev.Data = strings.Join(data, "\n")
				return ev, nil
			}
			return Event{}, err
		}
		line := string(e.line)
		switch {
		case line == "" && data == nil:
			ev = Event{} // an event without data does not count
			continue
		case line == "":
			ev.Data = strings.Join(data, "\n")
			return ev, nil
		case line[0] == ':' && data == nil && ev.Name == "":
			return Event{Comment: true}, nil
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			if size += len(value) + 1; size > maxEvent {
				return Event{}, errLongEvent
			}
			data = append(data, value)
		case "event":
			ev.Name = value
		}
	}
}

// readLine reads one line into e.line, without its end. If it fails, e.line holds the
// part that was read.
func (e *Events) readLine() error {
	e.line = e.line[:0]
	if !e.begun {
		e.begun = true
		if mark, err := e.r.Peek(3); err == nil && string(mark) == "\ufeff" {
			_, _ = e.r.Discard(3) // buffered, so it cannot fail
		}
	}
	for {
		c, err := e.r.ReadByte()
		if err != nil {
			return err
		}
		after := e.cr
		e.cr = false
		switch {
		case c == '\n' && after:
			continue
		case c == '\n':
			return nil
		case c == '\r':
			e.cr = true
			return nil
		}
		if len(e.line) >= maxEvent {
			return errLongEvent
		}
		e.line = append(e.line, c)
	}
}
