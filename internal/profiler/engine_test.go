package profiler

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/bench/workload"
	"github.com/dynctl/dynctl/internal/openai"
	"github.com/dynctl/dynctl/internal/profile"
)

// double is a server in virtual time: an engine whose steps have known costs, with chunked
// prefill and a prefix cache of whole prompts. Word count is token count, and prompts have
// overhead tokens more.
type double struct {
	costs   profile.Costs
	limits  profile.Limits
	request time.Duration // that a request takes beside its steps
	noCache bool
	refuse  func(q openai.Request) error // asked first
	usage   bool
	count   func(*openai.Usage) // changes what it counts
	pieces  int                 // of each token

	mu      sync.Mutex
	wake    chan struct{}
	running []*sequence
	cached  map[string]bool
	asked   []openai.Request
	tokens  uint64
}

const overhead = 5

type sequence struct {
	text                  string
	prompt, computed, out int
	want                  int
	tell                  chan int // the tokens of the answer so far; closed at its end
}

func newDouble() *double {
	return &double{
		costs:   profile.Costs{Step: 2e-3, Decode: 0.3e-3, DecodeContext: 1e-6, Token: 0.1e-3, ChunkContext: 20e-9},
		limits:  profile.Limits{KVBlocks: 2048, BlockSize: 16, MaxSeqs: 16, MaxBatchTokens: 512, MaxContext: 4096},
		request: 3 * time.Millisecond, usage: true, pieces: 1, count: func(*openai.Usage) {}, wake: make(chan struct{}, 1), cached: map[string]bool{},
	}
}

// serve makes the steps until ctx ends.
func (d *double) serve(ctx context.Context) {
	for {
		work, finish := d.step()
		if finish == nil {
			select {
			case <-d.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		time.Sleep(profile.Seconds(d.costs.StepSeconds(work)))
		finish()
	}
}

// step begins a step: a token of each sequence that decodes, and a chunk of prompts.
func (d *double) step() (work profile.Work, finish func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	room := d.limits.MaxBatchTokens
	var done []func()
	for _, s := range d.running[:min(len(d.running), d.limits.MaxSeqs)] {
		n := min(s.prompt+s.out-s.computed, room)
		if n == 0 {
			continue
		}
		room -= n
		work.Add(s.computed, n)
		done = append(done, func() {
			if s.computed += n; s.computed == s.prompt+s.out {
				s.out++
				s.tell <- s.out
			}
		})
	}
	if len(done) == 0 {
		return work, nil
	}
	return work, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, f := range done {
			f()
		}
		left := d.running[:0:0]
		for _, s := range d.running {
			if s.out < s.want {
				left = append(left, s)
				continue
			}
			d.cached[s.text] = !d.noCache
			close(s.tell)
		}
		d.running = left
	}
}

// ask is a bench.Ask.
func (d *double) ask(ctx context.Context, q openai.Request, each func(openai.Delta) error) (openai.Answer, error) {
	time.Sleep(d.request)
	d.mu.Lock()
	d.asked = append(d.asked, q)
	if d.refuse != nil {
		if err := d.refuse(q); err != nil {
			d.mu.Unlock()
			return openai.Answer{}, err
		}
	}
	text := q.Messages[0].Content
	s := &sequence{text: text, prompt: overhead + len(strings.Fields(text)), want: q.MaxTokens, tell: make(chan int, q.MaxTokens)}
	if d.cached[text] {
		s.computed = s.prompt - 1
	}
	cached := s.computed
	d.running = append(d.running, s)
	d.tokens += uint64(s.prompt + s.want)
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
	for {
		select {
		case _, more := <-s.tell:
			if more {
				for range d.pieces {
					if err := each(openai.Delta{Text: "x"}); err != nil {
						d.drop(s)
						return openai.Answer{}, err
					}
				}
				continue
			}
			a := openai.Answer{Finish: "length"}
			if d.usage {
				a.Usage = &openai.Usage{Prompt: s.prompt, Completion: s.want, Cached: &cached}
				d.count(a.Usage)
			}
			return a, nil
		case <-ctx.Done():
			d.drop(s)
			return openai.Answer{}, context.Cause(ctx)
		}
	}
}

// drop forgets a sequence that nobody awaits.
func (d *double) drop(gone *sequence) {
	d.mu.Lock()
	defer d.mu.Unlock()
	gone.want = 0 // the next step ends it
}

// activity is a Config.Others.
func (d *double) activity(context.Context) (Activity, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Activity{len(d.running), d.tokens}, nil
}

// config is a sweep of the double.
func (d *double) config() Config {
	return Config{
		Ask: d.ask, Model: "tiny", ExactLength: true, Scale: workload.Scale{PerWord: 1, Overhead: overhead}, Seed: rand.Uint64(), Timeout: time.Hour,
		Limits: d.limits, Plan: Plan(d.limits, overhead), Budget: time.Hour, Others: d.activity, Done: func(Measurement) error { return nil },
	}
}

// run measures it, in a bubble.
func (d *double) run(ctx context.Context, t *testing.T, c Config) (Result, error) {
	t.Helper()
	over, end := context.WithCancel(context.Background())
	var engine sync.WaitGroup
	engine.Go(func() { d.serve(over) })
	r, err := Run(ctx, c)
	end()
	engine.Wait()
	return r, err
}

func (d *double) subject() Subject {
	return Subject{Server: "worker-1 of cluster local", Model: "tiny", API: "chat", Devices: 1, Limits: d.limits}
}
