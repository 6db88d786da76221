package tui

import (
	"bytes"
	"context"
	"sync"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/client"
)

const (
	// logLines are kept of a log, the newest, each cut at logWidth bytes.
	logLines = 2000
	logWidth = 2 << 10
	// logAgain is the time after which a log that ended is opened again: its worker or its
	// node may be back.
	logAgain = 2 * time.Second
)

// logMsg says that a log has changed.
type logMsg struct{ log *logTail }

// logTail is the end of a log while it is read. Its reader writes to it, the screen reads
// it; close ends the reader and its stream.
type logTail struct {
	name  string // of the worker or the node
	ctx   context.Context
	close context.CancelFunc
	news  chan struct{} // capacity 1: there is something new

	mu      sync.Mutex
	lines   []string // the newest whole lines
	dropped int      // lines before them
	part    []byte   // of a line without an end, at most logWidth
	fresh   bool     // what comes next is the beginning of a new stream
	why     string   // why it is not read now; empty while it is
}

func newLogTail(ctx context.Context, name string) *logTail {
	t := &logTail{name: name, news: make(chan struct{}, 1)}
	t.ctx, t.close = context.WithCancel(ctx)
	return t
}

// write takes the next piece of the log. A new stream repeats what was read, and takes its
// place.
func (t *logTail) write(b []byte) error {
	t.mu.Lock()
	if t.fresh {
		t.dropped += len(t.lines)
		t.lines, t.part, t.fresh, t.why = nil, nil, false, ""
	}
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		t.part = append(t.part, line[:min(len(line), logWidth-len(t.part))]...)
		if whole {
			t.lines = append(t.lines, string(t.part))
			t.part = t.part[:0]
		}
		b = rest
	}
	if n := len(t.lines) - logLines; n > 0 {
		t.dropped += n
		t.lines = append([]string(nil), t.lines[n:]...)
	}
	t.mu.Unlock()
	t.notify()
	return t.ctx.Err()
}

// ended notes that the stream ended, and why.
func (t *logTail) ended(err error) {
	t.mu.Lock()
	t.fresh, t.why = true, "the log ended"
	if err != nil {
		t.why = err.Error()
	}
	t.mu.Unlock()
	t.notify()
}

func (t *logTail) notify() {
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// read returns the lines that are kept, the number of the first one among all, and why
// nothing is read now. The caller does not change them.
func (t *logTail) read() (lines []string, first int, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lines[:len(t.lines):len(t.lines)], t.dropped, t.why
}

// readLog reads a log until it is closed, and opens it again when its stream ends.
func (c *commander) readLog(s client.Source, t *logTail) tea.Cmd {
	return c.do(func(context.Context) tea.Msg {
		again := time.NewTimer(logAgain)
		defer again.Stop()
		for {
			err := s.Log(t.ctx, t.name, logLines, t.write)
			if t.ctx.Err() != nil {
				return nil
			}
			t.ended(err)
			again.Reset(logAgain)
			select {
			case <-t.ctx.Done():
				return nil
			case <-again.C:
			}
		}
	})
}

// awaitLog waits for something new in a log. Update arms it again after each.
func (c *commander) awaitLog(t *logTail) tea.Cmd {
	return c.do(func(context.Context) tea.Msg {
		select {
		case <-t.ctx.Done():
			return nil
		case <-t.news:
			return logMsg{t}
		}
	})
}
