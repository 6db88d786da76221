package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/bench/workload"
	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/model"
)

// question is one request in its two forms.
type question struct {
	body   []byte   // of a streamed chat completion
	tokens []uint32 // the same prompt as the frontend tokenizes it
	output int
	// arrived, if set, is called for each event with text. Only frontends call it.
	arrived func()
	// timing, if set, gets the data of the event with the timing of the request's images.
	timing func(data []byte) error
}

// asker makes requests.
type asker struct {
	proc *chat.Processor
}

func newAsker(m *model.Model) (*asker, error) {
	files := chat.Files{}
	for _, f := range m.Files() {
		files[f.Name] = f.Data
	}
	proc, err := chat.Load(files)
	if err != nil {
		return nil, err
	}
	return &asker{proc: proc}, nil
}

// question makes a request of at least prompt tokens with a unique beginning.
func (a *asker) question(ctx context.Context, prompt, output int) (question, error) {
	list := strings.Fields(workload.Words) // the built-in tokenizer knows them all
	text := fmt.Sprintf("%x", rand.Uint64())
	have := 0 // tokens
	for {
		for range max(8, (prompt-have)/8) {
			text += " " + list[rand.IntN(len(list))]
		}
		message, err := json.Marshal(map[string]string{"role": "user", "content": text})
		if err != nil {
			return question{}, fmt.Errorf("make request: %w", err)
		}
		rendered, err := a.proc.RenderChat(ctx, []json.RawMessage{message}, nil, nil, true)
		if err != nil {
			return question{}, fmt.Errorf("make request: %w", err)
		}
		tokens := a.proc.EncodeChat(rendered)
		if have = len(tokens); have < prompt {
			continue
		}
		body, err := json.Marshal(map[string]any{
			"model": cluster.BuiltinModelName, "messages": []json.RawMessage{message}, "max_tokens": output,
			"temperature": 0, "ignore_eos": true, "stream": true, "stream_options": map[string]any{"include_usage": true},
		})
		if err != nil {
			return question{}, fmt.Errorf("make request: %w", err)
		}
		return question{body: body, tokens: tokens, output: output}, nil
	}
}

// answer holds the arrival times of an answer.
type answer struct {
	ttft   time.Duration
	gaps   []time.Duration // between later arrivals
	rest   time.Duration   // from the first arrival to the last
	tokens int
	events int // arrivals with text or tokens
}

// target answers requests.
type target interface {
	answer(ctx context.Context, q question) (answer, error)
}

// answer implements target by the bare engine.
func (r *rig) answer(ctx context.Context, q question) (answer, error) {
	begin := time.Now()
	marks, err := r.generate(ctx, generation{tokens: q.tokens, output: q.output})
	if err != nil {
		return answer{}, err
	}
	a := answer{events: len(marks), gaps: make([]time.Duration, 0, len(marks))}
	for i, m := range marks {
		a.tokens += m.tokens
		if i == 0 {
			a.ttft = m.at.Sub(begin)
		} else {
			a.gaps = append(a.gaps, m.at.Sub(marks[i-1].at))
			a.rest = m.at.Sub(marks[0].at)
		}
	}
	return a, nil
}

// load is a fixed number of requests over a fixed number of streams.
type load struct {
	streams  int
	requests int // per stream
	prompt   int // tokens
	output   int // tokens
	ask      *asker
}

// to returns the load as a case for one target.
func (l load) to(name string, t target) Case {
	return Case{name, func(ctx context.Context) (Sample, error) { return l.run(ctx, t) }}
}

// errTokens is returned when an answer does not have the requested length.
var errTokens = errors.New("wrong number of tokens")

// run sends the load and describes the answers.
func (l load) run(ctx context.Context, to target) (Sample, error) {
	questions := make([]question, l.streams*l.requests)
	for i := range questions {
		var err error
		if questions[i], err = l.ask.question(ctx, l.prompt, l.output); err != nil {
			return nil, err
		}
	}
	answers, errs := make([]answer, len(questions)), make([]error, l.streams)
	cpu, known := cpuTime()
	begin := time.Now()
	var wg sync.WaitGroup
	for k := range l.streams {
		wg.Go(func() {
			for i := k; i < len(questions) && errs[k] == nil; i += l.streams {
				answers[i], errs[k] = to.answer(ctx, questions[i])
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var ttft, gaps, tpot []time.Duration
	tokens, events := 0, 0
	for _, a := range answers {
		if a.tokens != l.output {
			return nil, fmt.Errorf("%w: %d, asked for %d", errTokens, a.tokens, l.output)
		}
		ttft, gaps = append(ttft, a.ttft), append(gaps, a.gaps...)
		if a.tokens > 1 {
			tpot = append(tpot, a.rest/time.Duration(a.tokens-1))
		}
		tokens, events = tokens+a.tokens, events+a.events
	}
	s := Sample{keyRate: float64(tokens) / took.Seconds(), keyEvents: float64(events) / took.Seconds()}
	if after, _ := cpuTime(); known {
		s[keyCPUMicros] = float64((after - cpu).Microseconds()) / float64(tokens)
	}
	s.tail(keyTTFT, ttft, time.Millisecond)
	s.tail(keyITL, gaps, time.Millisecond)
	s.tail(keyTPOT, tpot, time.Millisecond)
	return s, nil
}
