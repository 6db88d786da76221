package frontend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
)

// choice is one of the answers of a request while it is being generated.
type choice struct {
	index  int
	prompt int // which prompt it belongs to
	req    protocol.PreprocessedRequest
	detok  *chat.Detokenizer
	stop   bool // a stop string was found
	last   time.Time
	finish string
	usage  protocol.Usage
}

// delta is a piece of one choice on its way to the client.
type delta struct {
	index  int
	text   string
	finish string // on the last piece
}

// usage is the token count of a request in OpenAI's words.
type usage struct {
	PromptTokens     int          `json:"prompt_tokens"`
	CompletionTokens int          `json:"completion_tokens"`
	TotalTokens      int          `json:"total_tokens"`
	Details          usageDetails `json:"prompt_tokens_details"`
}

type usageDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

// job is one HTTP request on its way: its choices run side by side and hand their
// deltas to one receiver.
type job struct {
	f       *Frontend
	m       *servedModel
	arrived time.Time
	met     *metrics.Request
	choices []*choice
	prompts []int // tokens of each prompt

	mu    sync.Mutex // serializes receive
	outN  int
	first sync.Once
}

// run generates all choices; receive gets every delta, one at a time. It returns
// the first error, after all choices have ended.
func (j *job) run(ctx context.Context, receive func(delta) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	errs := make([]error, len(j.choices))
	for i, c := range j.choices {
		wg.Go(func() {
			if errs[i] = j.generate(ctx, c, receive); errs[i] != nil {
				cancel(errs[i])
			}
		})
	}
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause // the first one; the others only followed
	}
	return errors.Join(errs...)
}

// errStopString ends a generation because the text is complete.
var errStopString = errors.New("stop string found")

func (j *job) generate(ctx context.Context, c *choice, receive func(delta) error) error {
	g := j.f.newGeneration(j.m, c.req, j.met)
	err := g.run(ctx, func(o protocol.EngineOutput) error { return j.take(c, o, receive) })
	if errors.Is(err, errStopString) {
		return nil
	}
	return err
}

// take turns one output of an engine into text.
func (j *job) take(c *choice, o protocol.EngineOutput, receive func(delta) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.observe(c, o)
	text, stopped := c.detok.Push(o.TokenIDs)
	d := delta{index: c.index, text: text}
	switch {
	case stopped:
		d.finish = string(protocol.FinishStop)
	case o.Finish == protocol.FinishError:
		return internalError("The engine failed: " + o.Error)
	case o.Finish != protocol.FinishNone:
		d.text += c.detok.Flush()
		d.finish = string(o.Finish)
	}
	c.finish = d.finish
	if d.text != "" || d.finish != "" {
		if err := receive(d); err != nil {
			return err
		}
	}
	if stopped {
		return errStopString // the worker is told to stop
	}
	return nil
}

// observe takes the measurements of one output.
func (j *job) observe(c *choice, o protocol.EngineOutput) {
	now := time.Now()
	n := len(o.TokenIDs)
	if o.Timing != nil {
		c.usage.CachedTokens = o.Timing.CachedTokens
		j.first.Do(func() {
			ttft := now.Sub(j.arrived)
			j.met.FirstToken(ttft)
			j.f.stats.firstToken(ttft, time.Duration(o.Timing.QueueNS))
		})
	}
	if n > 0 {
		var gap time.Duration
		if !c.last.IsZero() {
			gap = now.Sub(c.last)
		}
		c.last = now
		j.met.Tokens(n, gap)
		j.f.stats.tokens(n, gap)
	}
	c.usage.CompletionTokens += n
	j.outN += n
}

// usage adds up the tokens of all choices; a prompt counts once, whatever n is.
func (j *job) usage() usage {
	var u usage
	for _, n := range j.prompts {
		u.PromptTokens += n
	}
	for _, c := range j.choices {
		u.CompletionTokens += c.usage.CompletionTokens
		u.Details.CachedTokens = max(u.Details.CachedTokens, c.usage.CachedTokens)
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

// end counts how the request ended.
func (j *job) end(err error) {
	kind := metrics.ErrorNone
	if err != nil {
		kind = asAPIError(err).metric
	}
	cached := 0
	for _, c := range j.choices {
		cached += c.usage.CachedTokens
	}
	for _, n := range j.prompts {
		j.met.Prompt(n, min(cached, n))
	}
	j.met.End(metrics.Result{ErrorType: kind, Duration: time.Since(j.arrived), OutputTokens: j.outN})
	j.f.stats.ended(kind)
	if kind == metrics.ErrorCancelled {
		j.f.metrics.Disconnected.Inc()
	}
}

// sse writes server-sent events. The headers go out with the first event, so that
// an error before it can still be an ordinary response.
type sse struct {
	w       http.ResponseWriter
	flusher *http.ResponseController
	begun   bool
	buf     bytes.Buffer
}

func newSSE(w http.ResponseWriter) *sse {
	return &sse{w: w, flusher: http.NewResponseController(w)}
}

// send writes one event and flushes it.
func (s *sse) send(v any) error {
	s.buf.Reset()
	s.buf.WriteString("data: ")
	enc := json.NewEncoder(&s.buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil { // ends with one newline
		return err
	}
	s.buf.WriteByte('\n')
	return s.flush()
}

func (s *sse) flush() error {
	if !s.begun {
		s.begun = true
		h := s.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		s.w.WriteHeader(http.StatusOK)
	}
	if _, err := s.w.Write(s.buf.Bytes()); err != nil {
		return &clientGone{err}
	}
	if err := s.flusher.Flush(); err != nil {
		return &clientGone{err}
	}
	return nil
}

// end writes the end of the stream: an error event first if there was one.
func (s *sse) end(err error) {
	if err != nil {
		e := asAPIError(err)
		if !s.begun {
			e.write(s.w)
			return
		}
		s.buf.Reset()
		s.buf.WriteString("data: ")
		s.buf.Write(e.body()) // ends with one newline
		s.buf.WriteByte('\n')
	} else {
		s.buf.Reset()
	}
	s.buf.WriteString("data: [DONE]\n\n")
	_ = s.flush() // the client may have left
}

// clientGone is a failed write: the client has closed the connection.
type clientGone struct{ err error }

func (e *clientGone) Error() string { return "client gone: " + e.err.Error() }

func (e *clientGone) Unwrap() error { return context.Canceled }
