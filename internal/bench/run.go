package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/bench/workload"
	"github.com/dynctl/dynctl/internal/openai"
)

// Ask sends a request and delivers its answer piece by piece, as [openai.Client.Chat] does.
type Ask func(ctx context.Context, q openai.Request, each func(openai.Delta) error) (openai.Answer, error)

// Config is a load.
type Config struct {
	Ask   Ask
	Model string
	// Text has prompts sent as texts to be continued, and not as messages of a chat.
	Text   bool
	Source workload.Source
	Scale  workload.Scale
	Seed   uint64 // of the texts

	// Arrivals gives the times at which conversations begin, until it is false. Nil has
	// Concurrency conversations go on at any time, each followed by the next at once.
	Arrivals    func() (time.Duration, bool)
	Concurrency int
	// MaxInFlight bounds the conversations that arrivals begin. One more waits for another's
	// end: its latency counts from when it was due, and the report says that it waited.
	MaxInFlight int
	// Conversations and Duration end the load; 0 does not. What was sent is awaited.
	Conversations int
	Duration      time.Duration
	Warmup        int           // conversations before the load, which are not measured
	Think         time.Duration // between an answer and the next turn
	Timeout       time.Duration // of each request
	// ExactLength asks for answers that go on for as many tokens as wanted.
	ExactLength bool

	SLO SLO
	// Phases part the load in so many equal times, of PhaseLength each.
	Phases      int
	PhaseLength time.Duration

	// Done gets every record, Watch how far the load is, each from one goroutine at a time.
	Done  func(Record)
	Watch func(Status)
}

// Status is how far a load is.
type Status struct {
	Elapsed                 time.Duration
	Started, Succeeded      int // requests
	Failed, InFlight        int
	RequestsPerS, TokensPer float64 // per second; of tokens those of answers
}

// run is a load that goes on.
type run struct {
	Config
	begin time.Time

	mu      sync.Mutex // of all below
	tally   *tally
	phases  []*tally
	started int
	flying  int // requests
	most    int // the most of them at once
	held    int // conversations that waited for MaxInFlight
	next    int // conversation
}

// Run sends the load until it ends, or until ctx does, and reports what was measured. The
// warm-up comes first. The report lacks what only the caller knows.
func Run(ctx context.Context, c Config) *Report {
	r := &run{Config: c, tally: newTally(SampleLimit, c.Seed)}
	for i := range c.Phases {
		r.phases = append(r.phases, newTally(phaseSampleLimit, c.Seed+uint64(i)+1))
	}
	r.warm(ctx)
	r.begin = time.Now()
	var aside sync.WaitGroup
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	lag := newLag(c.Seed)
	aside.Go(func() { lag.measure(over) })
	if c.Watch != nil {
		aside.Go(func() { r.watch(over) })
	}
	if c.Arrivals != nil {
		r.open(ctx)
	} else {
		r.closed(ctx)
	}
	took := time.Since(r.begin)
	end()
	aside.Wait()
	return r.report(took, lag, ctx.Err() != nil)
}

func (r *run) now() time.Duration { return time.Since(r.begin) }

// conversation returns the next one of the source, and its number. It is false at the end of
// the load.
func (r *run) conversation() (workload.Conversation, int, bool) {
	r.mu.Lock()
	i := r.next
	if r.Conversations > 0 && i >= r.Warmup+r.Conversations {
		r.mu.Unlock()
		return workload.Conversation{}, 0, false
	}
	r.next++
	r.mu.Unlock()
	c, ok := r.Source.Conversation(i)
	return c, i, ok
}

// open begins conversations when they are due, whatever became of those before.
func (r *run) open(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	room := make(chan struct{}, r.MaxInFlight)
	for {
		at, ok := r.Arrivals()
		if !ok || r.Duration > 0 && at >= r.Duration {
			return
		}
		c, i, ok := r.conversation()
		if !ok {
			return
		}
		first := r.write(c.Turns[0]) // ahead, so that it delays nothing
		if !pause(ctx, at-r.now()) {
			return
		}
		select {
		case room <- struct{}{}:
		default:
			r.mu.Lock()
			r.held++
			r.mu.Unlock()
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
		all.Go(func() {
			defer func() { <-room }()
			r.converse(ctx, c, i, at, first)
		})
	}
}

// closed keeps Concurrency conversations going.
func (r *run) closed(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for range r.Concurrency {
		all.Go(func() {
			for ctx.Err() == nil && (r.Duration == 0 || r.now() < r.Duration) {
				c, i, ok := r.conversation()
				if !ok {
					return
				}
				first := r.write(c.Turns[0])
				r.converse(ctx, c, i, r.now(), first)
			}
		})
	}
}

// warm sends conversations one after the other, unmeasured.
func (r *run) warm(ctx context.Context) {
	for range r.Warmup {
		c, i, ok := r.conversation()
		if !ok || ctx.Err() != nil {
			return
		}
		quiet := &run{Config: r.Config, begin: time.Now(), tally: newTally(1, 0)}
		quiet.Done, quiet.phases = nil, nil
		quiet.converse(ctx, c, i, 0, r.write(c.Turns[0]))
	}
}

// write returns the text of a turn.
func (r *run) write(t workload.Turn) string { return r.Scale.Write(t, r.Seed) }

// converse sends the turns of a conversation one after the other, until one fails.
func (r *run) converse(ctx context.Context, c workload.Conversation, number int, due time.Duration, text string) {
	q := openai.Request{Model: r.Model}
	before := 0 // tokens of the turns so far
	for k, t := range c.Turns {
		if k > 0 {
			text = r.write(t)
		}
		q.MaxTokens = t.Output
		if r.ExactLength {
			q.MinTokens, q.IgnoreEOS = t.Output, true
		}
		if r.Text {
			q.Prompt = text
		} else {
			q.Messages = append(q.Messages, openai.Message{Role: "user", Content: text})
		}
		rec := Record{Conversation: number - r.Warmup, Turn: k, Due: due, WantInput: before + t.Input(), WantOutput: t.Output}
		answer := r.ask(ctx, q, &rec)
		r.take(rec)
		if rec.Kind != "" {
			return
		}
		before += t.Input() + rec.Output
		q.Messages = append(q.Messages, openai.Message{Role: "assistant", Content: answer})
		if due = rec.End + r.Think; k+1 < len(c.Turns) && !pause(ctx, due-r.now()) {
			return
		}
	}
}

// ask sends one request and measures its answer.
func (r *run) ask(ctx context.Context, q openai.Request, rec *Record) string {
	r.mu.Lock()
	r.started++
	r.flying++
	r.most = max(r.most, r.flying)
	r.mu.Unlock()
	limited, cancel := context.WithTimeoutCause(ctx, r.Timeout, errTimeout)
	defer cancel()
	rec.Sent = r.now()
	seen := 0 // tokens, where the server counts them with each chunk
	a, err := r.Ask(limited, q, func(d openai.Delta) error {
		if d.Text == "" && d.Reasoning == "" {
			return nil
		}
		now, tokens := r.now(), max(d.Tokens-seen, 1)
		seen = max(seen, d.Tokens)
		if rec.Chunks == 0 {
			rec.First = now
		} else {
			rec.gaps = append(rec.gaps, gap{now - rec.Last, tokens})
		}
		rec.Last = now
		rec.Chunks++
		return nil
	})
	rec.End = r.now()
	if err == nil && rec.Chunks == 0 {
		err = errEmpty
	}
	rec.Kind, rec.Finish, rec.Output = kindOf(ctx, err), a.Finish, rec.Chunks
	if err != nil {
		rec.Error = err.Error()
	}
	if u := a.Usage; u != nil {
		rec.Counted, rec.Input, rec.Output = true, u.Prompt, u.Completion
		if u.Cached != nil {
			rec.Cached = *u.Cached
		}
	}
	return a.Text
}

// take adds a record to what was measured.
func (r *run) take(rec Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flying--
	good := r.SLO.Met(rec)
	r.tally.add(rec, good)
	if len(r.phases) > 0 {
		r.phases[min(int(rec.Due/r.PhaseLength), len(r.phases)-1)].add(rec, good)
	}
	if r.Done != nil {
		r.Done(rec)
	}
}

// watchEvery is the time between two calls of Watch.
const watchEvery = 200 * time.Millisecond

// watch tells how far the load is until ctx ends.
func (r *run) watch(ctx context.Context) {
	for pause(ctx, watchEvery) {
		r.mu.Lock()
		s := Status{Elapsed: r.now(), Started: r.started, Succeeded: r.tally.ok, Failed: r.tally.failed, InFlight: r.flying}
		if seconds := s.Elapsed.Seconds(); seconds > 0 {
			s.RequestsPerS, s.TokensPer = float64(s.Succeeded)/seconds, float64(r.tally.output)/seconds
		}
		r.mu.Unlock()
		r.Watch(s)
	}
}

// pause waits for a time; it is false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Calibrate asks twice for one token, with prompts of different lengths, to learn how the
// server counts tokens. longest is the most tokens that a prompt should have. The scale is
// false where the server does not count. An error is that of the server.
func Calibrate(ctx context.Context, c Config, longest int) (workload.Scale, bool, error) {
	var counts [2]int
	words := [2]int{8, max(min(longest/2, 512), 24)}
	for i, n := range words {
		turn := workload.Turn{Parts: []workload.Part{{Text: calibration + uint64(i), Tokens: n}}, Output: 1}
		q := openai.Request{Model: c.Model, MaxTokens: 1}
		if c.ExactLength {
			q.MinTokens, q.IgnoreEOS = 1, true
		}
		text := workload.Scale{PerWord: 1}.Write(turn, c.Seed)
		if c.Text {
			q.Prompt = text
		} else {
			q.Messages = []openai.Message{{Role: "user", Content: text}}
		}
		limited, cancel := context.WithTimeoutCause(ctx, c.Timeout, errTimeout)
		a, err := c.Ask(limited, q, func(openai.Delta) error { return nil })
		cancel()
		if err != nil {
			return workload.Scale{}, false, fmt.Errorf("the first request: %w", err)
		}
		if a.Usage != nil {
			counts[i] = a.Usage.Prompt
		}
	}
	s, ok := workload.Measure(words[0], counts[0], words[1], counts[1])
	return s, ok, nil
}

// calibration numbers texts that no conversation has.
const calibration = 1 << 63
