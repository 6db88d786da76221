package requestplane

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

// TypeLines is the media type of an answer in lines of JSON; see [AnswerLine].
const TypeLines = "application/x-ndjson"

// HeaderID is the HTTP header with the id of a request.
const HeaderID = "X-Request-Id"

// TraceHeaders are the headers of a request that also travel as HTTP headers, where proxies and
// collectors of traces look for them.
var TraceHeaders = []string{"traceparent", "tracestate", "baggage"}

// headerTimeout is the HTTP header that limits a request in JSON, in milliseconds. Nodes
// send theirs in the frame.
const headerTimeout = "X-Request-Timeout-Ms"

// httpForm is the form of a request and its answer.
type httpForm bool

const (
	frames httpForm = false // between nodes
	lines  httpForm = true  // JSON in, lines of JSON out
)

func formOf(r *http.Request) httpForm {
	t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return httpForm(err != nil || t != typeFrames)
}

func (f httpForm) answerType() string {
	if f == frames {
		return typeFrames
	}
	return TypeLines
}

func (f httpForm) writer(w io.Writer) io.Writer {
	if f == frames {
		return w
	}
	return lineWriter{w}
}

// readRequest reads the whole request. Its first bytes must arrive soon; flow control and
// the keep-alive limit a large rest.
func (c *httpCall) readRequest() (*Request, time.Duration, error) {
	path := strings.TrimPrefix(c.r.URL.Path, cluster.RPCRoot)
	if err := c.rc.SetReadDeadline(time.Now().Add(c.server.cfg.HandshakeTimeout)); err != nil {
		return nil, 0, err
	}
	if c.form == lines {
		return c.readJSON(path)
	}
	in := &frameReader{src: c.r.Body, limit: c.server.cfg.Limits.MaxMessage}
	if err := in.fill(); err != nil {
		return nil, 0, err
	}
	if err := c.rc.SetReadDeadline(noDeadline); err != nil {
		return nil, 0, err
	}
	typ, payload, err := in.next()
	if err != nil {
		return nil, 0, err
	}
	if typ != frameRequest {
		return nil, 0, fmt.Errorf("frame type %d in place of a request: %w", typ, errFrame)
	}
	h, body, err := decodeRequest(payload)
	if err != nil {
		return nil, 0, err
	}
	if h.Path != path {
		return nil, 0, fmt.Errorf("request for %q at the path of %q: %w", h.Path, path, errFrame)
	}
	return &Request{ID: h.ID, Path: path, Headers: h.Headers, Body: body}, h.Timeout, nil
}

// readJSON reads a request of a program that is no node. It must arrive within the time of
// a handshake.
func (c *httpCall) readJSON(path string) (*Request, time.Duration, error) {
	limit := c.server.cfg.Limits.MaxMessage
	text, err := io.ReadAll(io.LimitReader(c.r.Body, int64(limit)+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, 0, errors.New("the body did not arrive in time")
	case err != nil:
		return nil, 0, err
	case len(text) > limit:
		return nil, 0, fmt.Errorf("body over %d bytes: %w", limit, ErrTooLarge)
	}
	if err := c.rc.SetReadDeadline(noDeadline); err != nil {
		return nil, 0, err
	}
	req := &Request{ID: c.r.Header.Get(HeaderID), Path: path, Headers: map[string]string{}}
	for _, name := range TraceHeaders {
		if v := c.r.Header.Get(name); v != "" {
			req.Headers[name] = v
		}
	}
	if len(strings.TrimSpace(string(text))) > 0 {
		if req.Body, err = protocol.FromJSON(text); err != nil {
			return nil, 0, err
		}
	}
	var timeout time.Duration
	if v := c.r.Header.Get(headerTimeout); v != "" {
		ms, err := strconv.ParseUint(v, 10, 32)
		if err != nil || ms == 0 {
			return nil, 0, fmt.Errorf("%s: %q is no number of milliseconds", headerTimeout, v)
		}
		timeout = time.Duration(ms) * time.Millisecond
	}
	return req, timeout, nil
}

// lineWriter turns frames into lines of JSON: {"item":...}, and at the end {"end":true} or
// {"error":{...}}.
type lineWriter struct{ w io.Writer }

// AnswerLine is one line of an answer in JSON. Exactly one field is set.
type AnswerLine struct {
	Item  json.RawMessage `json:"item,omitempty"`
	End   bool            `json:"end,omitempty"`
	Error *LineError      `json:"error,omitempty"`
}

// LineError is how an answer in JSON failed.
type LineError struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"`
	// RetrySafe says that no handler ran: to send the request again repeats no work.
	RetrySafe bool `json:"retry_safe"`
}

// Write takes whole frames, as the outbox writes them.
func (l lineWriter) Write(p []byte) (int, error) {
	var out []byte
	for rest := p; len(rest) > 0; {
		n := 4 + int(binary.BigEndian.Uint32(rest))
		line, err := lineOf(rest[4], rest[frameOverhead:n])
		if err != nil {
			return 0, err
		}
		if out, err = appendLine(out, line); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	if _, err := l.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

func lineOf(typ byte, payload []byte) (AnswerLine, error) {
	switch typ {
	case frameEnd:
		return AnswerLine{End: true}, nil
	case frameError:
		e := decodeError(payload)
		return AnswerLine{Error: &LineError{e.Kind, e.Message, NotStarted(e)}}, nil
	}
	item, err := protocol.ToJSON(payload)
	return AnswerLine{Item: item}, err
}

func appendLine(out []byte, line AnswerLine) ([]byte, error) {
	b, err := json.Marshal(line)
	return append(append(out, b...), '\n'), err
}
