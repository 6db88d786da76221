package frontend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/chat/parse"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/fairqueue"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
)

// choice is one answer of a request during its generation.
type choice struct {
	index  int
	prompt int // index of its prompt
	gen    *generation
	pass   *fairqueue.Pass // admission to the workers
	detok  *chat.Detokenizer
	probs  *logprobTrack   // nil unless log probabilities are asked for
	parts                  // of a chat
	text   strings.Builder // of a whole answer
	finish string
	raw    bool            // it is forwarded
	whole  json.RawMessage // of that, the latest object
	tokens int             // generated tokens, including those of a stop string
	cached int             // tokens of the prompt found in a prefix cache
	timed  bool
	// cacheUnknown is set as long as the engine has not told cached.
	cacheUnknown bool
	first        time.Time // when the first tokens came
	last         time.Time // and the last ones
}

// delta is a piece of one choice on its way to the client.
type delta struct {
	index  int
	text   string
	events []parse.Event // replaces text when it is parsed into parts
	finish string        // on the last piece
	// probs holds the tokens of text, echoed those of the prompt; nil unless log
	// probabilities are asked for.
	probs, echoed []tokenLogprob
	// raw replaces all that: it is what a server answers, for the client as it is.
	raw json.RawMessage
}

// usage holds the token counts of a request, in OpenAI's terms.
type usage struct {
	PromptTokens     int          `json:"prompt_tokens"`
	CompletionTokens int          `json:"completion_tokens"`
	TotalTokens      int          `json:"total_tokens"`
	Details          usageDetails `json:"prompt_tokens_details"`
	// Completion is nil if reasoning cannot be told from the answer.
	Completion *completionDetails `json:"completion_tokens_details,omitempty"`
}

type usageDetails struct {
	CachedTokens int `json:"cached_tokens"`
	ImageTokens  int `json:"image_tokens,omitempty"`
}

type completionDetails struct {
	ReasoningTokens int `json:"reasoning_tokens"`
}

// job is one HTTP request. Its choices run concurrently and pass their deltas to one
// receiver.
type job struct {
	f        *Frontend
	id       string
	endpoint string
	stream   bool
	model    string
	tenant   string
	routing  routeAsk
	queueing queueing
	arrived  time.Time
	met      *metrics.Request
	choices  []*choice
	prompts  []int // tokens of each prompt
	images   int   // of these, those in place of which images stand

	mu   sync.Mutex // guards the fields below and the text of the choices, and serializes receive
	outN int
	ttft time.Duration // 0 until the first token
}

// sink takes the deltas of all choices.
type sink struct {
	put func(delta) error // is called with one delta at a time
	// flush passes on what was put, before a choice waits for more; nil if put does. After
	// the last delta of an only choice it is not called: the end of the answer is near.
	flush func() error
}

// generateAll generates all choices, the first on this goroutine. The error is the first one,
// which cancels the others.
func (j *job) generateAll(ctx context.Context, cancel context.CancelCauseFunc, to sink) error {
	var failed atomic.Bool
	generate := func(c *choice) {
		if err := j.generate(ctx, c, to); err != nil {
			failed.Store(true)
			cancel(err)
		}
	}
	var others sync.WaitGroup
	for _, c := range j.choices[1:] {
		others.Go(func() { generate(c) })
	}
	generate(j.choices[0])
	others.Wait()
	if failed.Load() {
		return context.Cause(ctx)
	}
	return nil
}

// work returns how many tokens a worker has to compute before the first token of a
// choice. Choices of the same prompt share its computation, so it counts for the first.
func (j *job) work(c *choice) int {
	if c.index > 0 && j.choices[c.index-1].prompt == c.prompt {
		return 1
	}
	return max(j.prompts[c.prompt], 1)
}

// errStopString ends a generation because the text is complete.
var errStopString = errors.New("stop string found")

// generate runs one choice. A panic ends the request, not the process.
func (j *job) generate(ctx context.Context, c *choice, to sink) (err error) {
	defer func() {
		if p := recover(); p != nil {
			j.f.log.Error("generation panicked", "request", j.id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = internalError("Internal server error.")
		}
	}()
	defer c.pass.Leave()
	if err := j.enter(ctx, c); err != nil {
		return err
	}
	c.pass.Charge(float64(j.work(c)))
	c.gen.flush = to.flush
	take := j.take
	if c.raw {
		take = j.takeRaw
	}
	err = c.gen.run(ctx, func(o protocol.EngineOutput) error { return take(c, o, to.put) })
	if errors.Is(err, errStopString) {
		err = nil
	}
	if err == nil && to.flush != nil && len(j.choices) > 1 {
		err = to.flush()
	}
	return err
}

// take decodes one output of an engine into text.
func (j *job) take(c *choice, o protocol.EngineOutput, receive func(delta) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := c.takeLogprobs(o); err != nil {
		j.f.log.Warn("engine sent bad log probabilities", "request", j.id, "error", err)
		return internalError("The engine failed.")
	}
	c.pass.Charge(float64(len(o.TokenIDs)))
	d := delta{index: c.index}
	stopped := c.read(&d, o.TokenIDs)
	j.observe(c, o)
	switch {
	case stopped:
		d.finish = string(protocol.FinishStop)
	case o.Finish == protocol.FinishError:
		j.f.log.Debug("engine reports an error", "request", j.id, "error", o.Error)
		return internalError("The engine failed.")
	case o.Finish == protocol.FinishLength:
		c.flush(&d)
		d.finish = string(protocol.FinishLength)
		if c.detok.Stopped() {
			d.finish = string(protocol.FinishStop)
		}
	case o.Finish != protocol.FinishNone: // engines of others have more words for it
		c.flush(&d)
		d.finish = string(protocol.FinishStop)
	}
	c.close(&d)
	c.finish = d.finish
	if d.text != "" || len(d.events) > 0 || d.finish != "" {
		if c.probs != nil {
			c.probs.fill(&d)
		}
		if err := receive(d); err != nil {
			return err
		}
	}
	if stopped && o.Finish == protocol.FinishNone {
		return errStopString // the worker is told to stop
	}
	return nil
}

// observe records the measurements of one output, after its tokens were pushed.
func (j *job) observe(c *choice, o protocol.EngineOutput) {
	if o.Timing != nil && !c.timed {
		c.timed = true // later ones are of a migration, whose prompt holds output
		c.cached = min(o.Timing.CachedTokens, j.prompts[c.prompt])
		c.cacheUnknown = o.Timing.CacheUnknown
		j.f.stats.queued(c.gen.began.Sub(j.arrived) + time.Duration(o.Timing.QueueNS))
	}
	if o.Usage != nil && c.cacheUnknown {
		c.cached, c.cacheUnknown = min(o.Usage.CachedTokens, j.prompts[c.prompt]), false
	}
	if n := c.detok.Tokens() - c.tokens; n > 0 {
		j.count(c, n)
	}
}

// count records n tokens that have just come.
func (j *job) count(c *choice, n int) {
	now := time.Now()
	if j.ttft == 0 {
		j.ttft = now.Sub(j.arrived)
		j.met.FirstToken(j.ttft)
		j.f.stats.firstToken(j.ttft)
	}
	var gap time.Duration
	if c.first.IsZero() {
		c.first = now
	} else {
		gap = now.Sub(c.last)
	}
	c.last = now
	c.tokens += n
	j.outN += n
	j.met.Tokens(n, gap)
	j.f.stats.tokens(n, gap)
}

// usage adds up the tokens of all choices; a prompt counts once, whatever n is.
func (j *job) usage() usage {
	j.mu.Lock()
	defer j.mu.Unlock()
	u := usage{CompletionTokens: j.outN}
	for i, n := range j.prompts {
		u.PromptTokens += n
		u.Details.CachedTokens += j.cached(i)
	}
	u.Details.ImageTokens = j.images
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	u.Completion = reasoningOf(j.choices)
	return u
}

// cached returns how many tokens of a prompt were found in a prefix cache. It takes the
// choice that found the most: other choices often find what that choice computed.
func (j *job) cached(prompt int) int {
	n := 0
	for _, c := range j.choices {
		if c.prompt == prompt {
			n = max(n, c.cached)
		}
	}
	return n
}

// served describes the answer of one choice; ok is false where it has no token.
func (j *job) served(c *choice) (r cluster.ServedRequest, ok bool) {
	if c.tokens == 0 {
		return r, false
	}
	r = cluster.ServedRequest{Prompt: j.prompts[c.prompt], Cached: c.cached, Output: c.tokens, TTFT: c.first.Sub(j.arrived)}
	if c.tokens > 1 {
		r.ITL = c.last.Sub(c.first) / time.Duration(c.tokens-1)
	}
	return r, true
}

// end counts the outcome of the request.
func (j *job) end(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	kind, status, refusal := metrics.ErrorNone, 200, ""
	if err != nil {
		e := asAPIError(err)
		kind, status, refusal = e.metric, e.status, e.refusal
	}
	took, moves := time.Since(j.arrived), 0
	if err == nil || j.ttft > 0 {
		for i, n := range j.prompts {
			j.met.Prompt(n, j.cached(i))
		}
	}
	for _, c := range j.choices {
		moves += int(c.gen.moves.Load())
		if r, ok := j.served(c); ok && err == nil {
			j.f.stats.served(c.gen.m.declared(), r)
		}
	}
	j.record(time.Now())
	j.met.End(metrics.Result{ErrorType: kind, Refusal: refusal, Duration: took, OutputTokens: j.outN})
	j.f.stats.ended(kind)
	if kind == metrics.ErrorCancelled {
		j.f.metrics.Disconnected.Inc()
	}
	log := j.f.log.Debug
	if status >= 500 && !errors.Is(err, router.ErrNoWorkers) { // an idle cluster is no news for each request
		log = j.f.log.Warn
	}
	log("request ended", "request", j.id, "endpoint", j.endpoint, "model", j.model, "stream", j.stream,
		"status", status, "prompts", len(j.prompts), "prompt_tokens", sum(j.prompts), "output_tokens", j.outN,
		"ttft", j.ttft, "took", took, "moves", moves, "error", err)
}

func sum(list []int) (n int) {
	for _, v := range list {
		n += v
	}
	return n
}
