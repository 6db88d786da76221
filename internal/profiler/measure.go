package profiler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/bench/workload"
	"github.com/dynctl/dynctl/internal/openai"
)

// Measurement is a point that was measured. Counts of tokens are the server's.
type Measurement struct {
	Point
	// Seconds are the time to the first token, or between two tokens of a sequence.
	Seconds float64 `json:"seconds"`
	// Prompt is the tokens of a prompt, Cached those of them that a prefix cache had. Both are 0
	// of sequences that decode.
	Prompt int `json:"prompt,omitempty"`
	Cached int `json:"cached,omitempty"`
	// Context is the mean number of positions that the tokens attend to, and Counted how many
	// tokens were measured. Both are 0 of a prompt.
	Context float64 `json:"context,omitempty"`
	Counted int     `json:"counted,omitempty"`
	// TookS is how long it took to measure the point, in seconds.
	TookS float64 `json:"took_s"`
}

// Errors of a server that cannot be measured, or not at a point.
var (
	// ErrUncounted is returned for a server that does not count the tokens of an answer.
	ErrUncounted = errors.New("the server does not count tokens: its answers have no usage")
	// ErrShort is returned for a point at which not all sequences decode at the same time for
	// long enough.
	ErrShort = errors.New("not all decode at the same time for long enough")
	// ErrWrong is returned for an answer that is not as long as it was asked to be.
	ErrWrong = errors.New("the answer has not the length that was asked for")
)

// stream is one answer as it came.
type stream struct {
	first  time.Duration // until its first token; until its end, if no token has a text
	times  []time.Duration
	tokens []float64 // of the answer, at each of the times
	usage  openai.Usage
}

// sweep is a run that goes on.
type sweep struct {
	Config
	begin time.Time
	texts uint64 // that were used
	// ahead is how many tokens a sequence gets before the last one has begun, for each of them.
	ahead float64
	own   uint64 // tokens of all answers and prompts
	mu    sync.Mutex
	state Status // under mu
}

// write returns a text of so many tokens that no request had before.
func (s *sweep) write(tokens int) string {
	s.texts++
	return s.Scale.Write(workload.Turn{Parts: []workload.Part{{Text: s.texts, Tokens: tokens}}}, s.Seed)
}

// ask sends one request for an answer of so many tokens.
func (s *sweep) ask(ctx context.Context, text string, answer int) (stream, error) {
	q := openai.Request{Model: s.Model, MaxTokens: answer}
	if s.ExactLength {
		q.MinTokens, q.IgnoreEOS = answer, true
	}
	if s.Text {
		q.Prompt = text
	} else {
		q.Messages = []openai.Message{{Role: "user", Content: text}}
	}
	limited, cancel := context.WithTimeoutCause(ctx, s.Timeout, errTimeout)
	defer cancel()
	var out stream
	sent := time.Now()
	told := false // tokens come counted
	a, err := s.Ask(limited, q, func(d openai.Delta) error {
		if d.Text == "" && d.Reasoning == "" {
			return nil
		}
		if len(out.times) == piecesPerToken*answer {
			return fmt.Errorf("%w: more pieces than %d for each token", ErrWrong, piecesPerToken)
		}
		count := float64(len(out.times) + 1)
		if d.Tokens > 0 {
			count, told = float64(d.Tokens), true
		}
		out.times, out.tokens = append(out.times, time.Since(s.begin)), append(out.tokens, count)
		return nil
	})
	ended := time.Since(sent)
	switch {
	case err != nil:
		return out, err
	case a.Usage == nil || a.Usage.Prompt < 1:
		return out, ErrUncounted
	case a.Usage.Prompt > most || a.Usage.Completion < 1 || a.Usage.Completion > answer:
		return out, fmt.Errorf("%w: the server counts %d tokens for a prompt, and %d of %d for the answer", ErrWrong, a.Usage.Prompt, a.Usage.Completion, answer)
	}
	out.usage = *a.Usage
	out.first = ended
	if len(out.times) > 0 {
		out.first = s.begin.Add(out.times[0]).Sub(sent)
	}
	if n := len(out.tokens); n > 0 && !told {
		// A token without a text of its own, as a part of a character, comes with the next one.
		for i := range out.tokens {
			out.tokens[i] *= float64(out.usage.Completion) / float64(n)
		}
	}
	return out, nil
}

// piecesPerToken bounds in how many pieces an answer may come.
const piecesPerToken = 8

var errTimeout = errors.New("no complete answer in time")

// together sends requests at the same time and awaits all answers, or the first failure.
func (s *sweep) together(ctx context.Context, texts []string, answer int) ([]stream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := make([]stream, len(texts))
	errs := make([]error, len(texts))
	var all sync.WaitGroup
	for i, text := range texts {
		all.Go(func() {
			if out[i], errs[i] = s.ask(ctx, text, answer); errs[i] != nil {
				cancel(errs[i])
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	for _, a := range out {
		s.own += uint64(a.usage.Prompt + a.usage.Completion)
	}
	return out, nil
}

// measure measures a point several times: the median counts. One that takes long is measured
// less often.
func (s *sweep) measure(ctx context.Context, p Point) (Measurement, error) {
	once := s.decode
	if p.Kind == Prefill {
		once = s.prefill
	}
	var found []Measurement
	begin := time.Now()
	for len(found) == 0 || len(found) < repeats && time.Since(begin) < s.Budget/repeatShare {
		m, err := once(ctx, p)
		if err != nil {
			return m, err
		}
		found = append(found, m)
	}
	slices.SortFunc(found, func(a, b Measurement) int { return cmp.Compare(a.Seconds, b.Seconds) })
	return found[(len(found)-1)/2], nil
}

// prefill measures a prompt alone.
func (s *sweep) prefill(ctx context.Context, p Point) (Measurement, error) {
	m := Measurement{Point: p}
	a, err := s.together(ctx, []string{s.write(p.Tokens)}, 1)
	if err != nil {
		return m, err
	}
	m.Prompt, m.Seconds = a[0].usage.Prompt, a[0].first.Seconds()
	if c := a[0].usage.Cached; c != nil {
		m.Cached = *c
	}
	if m.Cached < 0 || m.Cached >= m.Prompt || m.Seconds <= 0 {
		return m, fmt.Errorf("%w: %d of %d tokens cached, in %v s", ErrWrong, m.Cached, m.Prompt, m.Seconds)
	}
	return m, nil
}

const (
	// repeats is how often a point is measured, while that takes no more than a part of the
	// budget.
	repeats     = 3
	repeatShare = 60
	// attempts is how often a point is measured anew with longer answers.
	attempts = 3
)

// decode measures sequences that decode at the same time. Their prompts are computed before, one
// token of an answer each, so that a prefix cache has them when all begin together. Measured is
// from when the last one has its first token until the first one ends.
func (s *sweep) decode(ctx context.Context, p Point) (Measurement, error) {
	for try := range attempts {
		answer := window + 8 + int(math.Ceil(s.ahead*float64(p.Streams)))
		answer = min(answer, s.longestAnswer(p))
		texts := make([]string, p.Streams)
		for i := range texts {
			texts[i] = s.write(p.Tokens - answer/2)
		}
		if _, err := s.together(ctx, texts, 1); err != nil {
			return Measurement{}, err
		}
		all, err := s.together(ctx, texts, answer)
		if err != nil {
			return Measurement{}, err
		}
		m, missing := overlap(p, all)
		last := try == attempts-1 || answer == s.longestAnswer(p)
		if missing == 0 || last && m.Counted > 0 {
			return m, nil
		}
		if last {
			return m, fmt.Errorf("%w: less than %d of %d tokens", ErrShort, leastWindow, answer)
		}
		s.ahead += float64(missing) / float64(p.Streams)
	}
	return Measurement{}, ErrShort // not reached: the last attempt returns
}

// longestAnswer returns how long the answers of a point may be, whose middles have its context:
// something is left for the prompt, and all has room in the model's context and in the pool.
func (s *sweep) longestAnswer(p Point) int {
	room := min(s.Limits.MaxContext, s.Limits.KVTokens()/p.Streams-s.Limits.BlockSize) - p.Tokens - slack(p.Tokens)
	return max(2*min(room, p.Tokens-nearest/4), leastWindow+1)
}

// overlap measures where all streams have tokens. missing is how many tokens each lacks to the
// window.
func overlap(p Point, all []stream) (m Measurement, missing int) {
	m.Point = p
	var from time.Duration
	until := time.Duration(math.MaxInt64)
	for _, a := range all {
		if len(a.times) == 0 {
			return m, window
		}
		from, until = max(from, a.times[0]), min(until, a.times[len(a.times)-1])
	}
	var took time.Duration
	count, positions, least := 0.0, 0.0, math.Inf(1)
	for _, a := range all {
		i, _ := slices.BinarySearch(a.times, from)
		k, _ := slices.BinarySearch(a.times, until+1)
		n := 0.0
		if k--; k > i {
			n = a.tokens[k] - a.tokens[i]
			took += a.times[k] - a.times[i]
			// The token after the first n of an answer attends to these and to the prompt.
			positions += n * (float64(a.usage.Prompt) + (a.tokens[i]+a.tokens[k]-1)/2)
		}
		count, least = count+n, min(least, n)
	}
	switch {
	case took <= 0:
		return m, window // all came at once
	case least < leastWindow:
		return m, window - int(least)
	}
	m.Counted, m.Seconds, m.Context = int(math.Round(count)), took.Seconds()/count, positions/count
	return m, max(window-int(math.Ceil(least)), 0)
}
