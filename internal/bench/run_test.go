package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/bench/arrival"
	"github.com/dynctl/dynctl/internal/bench/workload"
	"github.com/dynctl/dynctl/internal/openai"
)

// steady answers with a first token after ttft and further ones each itl, ends 5 ms after
// the last, and counts tokens.
func steady(ttft, itl time.Duration) Ask {
	return func(ctx context.Context, q openai.Request, each func(openai.Delta) error) (openai.Answer, error) {
		a := openai.Answer{Finish: "length"}
		for i := range q.MaxTokens {
			wait := itl
			if i == 0 {
				wait = ttft
			}
			if !pause(ctx, wait) {
				return a, context.Cause(ctx)
			}
			a.Text += "x"
			_ = each(openai.Delta{})
			_ = each(openai.Delta{Text: "x"})
		}
		pause(ctx, 5*time.Millisecond)
		prompt := q.Prompt
		for _, m := range q.Messages {
			prompt += " " + m.Content
		}
		a.Usage = &openai.Usage{Prompt: len(strings.Fields(prompt)), Completion: q.MaxTokens, Cached: new(2)}
		return a, nil
	}
}

// config is a load of prompts of 10 tokens and answers of 4.
func config(ask Ask) Config {
	return Config{
		Ask: ask, Model: "m", Source: workload.Synthetic{Input: workload.Fixed(10), Output: workload.Fixed(4), Turns: 1, Prefixes: 1},
		Scale: workload.Scale{PerWord: 1}, MaxInFlight: 1000, Timeout: time.Minute, ExactLength: true,
	}
}

// arrivals are evenly spaced.
func arrivals(rate float64) func() (time.Duration, bool) {
	return arrival.New(arrival.Constant(rate), false, 0).Next
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6*max(1, math.Abs(want)) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func TestClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(steady(100*time.Millisecond, 20*time.Millisecond))
		c.Concurrency, c.Conversations, c.Warmup = 2, 6, 3
		var records []Record
		c.Done = func(r Record) { records = append(records, r) }
		var watched []Status
		c.Watch = func(s Status) { watched = append(watched, s) }
		r := Run(t.Context(), c)
		if r.Requests != 6 || r.Succeeded != 6 || r.Failed != 0 || len(records) != 6 || r.Client.MaxInFlight != 2 || r.Load.OpenLoop {
			t.Fatalf("%+v", r)
		}
		near(t, "TTFT", r.TTFT.P99.Value, 100)
		near(t, "ITL", r.ITL.Mean.Value, 20)
		near(t, "TPOT", r.TPOT.P50.Value, 20)
		near(t, "E2E", r.E2E.Max, 165)
		near(t, "window", r.WindowS, 3*0.165)
		near(t, "requests/s", r.RequestsPerS, 6/(3*0.165))
		near(t, "output tokens/s", r.OutputPerS, 24/(3*0.165))
		near(t, "input tokens/s", r.InputPerS, 60/(3*0.165))
		near(t, "cached", r.CachedShare, 0.2)
		near(t, "late", r.Client.Late.Max, 0)
		near(t, "lag", r.Client.Lag.Max, 0)
		if r.ITL.Count != 18 || r.Finish["length"] != 6 || r.Uncounted != 0 || r.TokensPerChunk != 1 || len(r.Client.Limited) != 0 || r.Goodput != nil || r.Interrupted {
			t.Errorf("%+v", r)
		}
		numbers := map[int]bool{}
		for _, rec := range records {
			numbers[rec.Conversation] = true
			if rec.Input != 10 || rec.WantInput != 10 || rec.Output != 4 || rec.Cached != 2 || rec.Late() != 0 || rec.E2E() != 165*time.Millisecond {
				t.Errorf("%+v", rec)
			}
		}
		for i := range 6 {
			if !numbers[i] {
				t.Errorf("conversation %d is missing: the warm-up must not count", i)
			}
		}
		if len(watched) != 2 || watched[0].InFlight != 2 || watched[0].Succeeded != 2 || watched[1].Elapsed != 400*time.Millisecond || watched[1].Succeeded != 4 {
			t.Errorf("watched %+v", watched)
		}
		near(t, "rate so far", watched[1].RequestsPerS, 10)
		near(t, "tokens so far", watched[1].TokensPer, 40)
	})
}

// A server that stands still for two seconds delays what is due meanwhile, and the load goes
// on as if it did not: each request tells how long it took from when it was due.
func TestStallIsNotOmitted(t *testing.T) {
	stall := func(begin *time.Time) Ask {
		return func(ctx context.Context, q openai.Request, each func(openai.Delta) error) (openai.Answer, error) {
			at := time.Since(*begin)
			if at >= time.Second && at < 3*time.Second {
				pause(ctx, 3*time.Second-at)
			}
			return steady(10*time.Millisecond, 0)(ctx, q, each)
		}
	}
	want := func(due time.Duration) time.Duration { // time to the first token
		if due >= time.Second && due < 3*time.Second {
			return 3*time.Second - due + 10*time.Millisecond
		}
		return 10 * time.Millisecond
	}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		c := config(stall(&begin))
		c.Arrivals, c.Duration = arrivals(10), 5*time.Second
		sum, held := 0.0, 0
		c.Done = func(r Record) {
			if (r.TTFT()-want(r.Due)).Abs() > 10 || r.Late().Abs() > 10 {
				t.Errorf("due %s: first token after %s, want %s; sent %s late", r.Due, r.TTFT(), want(r.Due), r.Late())
			}
			sum += ms(want(r.Due))
			if want(r.Due) > time.Second {
				held++
			}
		}
		r := Run(t.Context(), c)
		if r.Requests != 50 || r.Client.MaxInFlight != 21 || len(r.Client.Limited) != 0 || held != 11 {
			t.Errorf("%d requests, %d in flight, %q, %d held", r.Requests, r.Client.MaxInFlight, r.Client.Limited, held)
		}
		near(t, "mean", math.Round(r.TTFT.Mean.Value*1000), math.Round(sum/50*1000))
		near(t, "max", math.Round(r.TTFT.Max), 2010)
		near(t, "window", math.Round(r.WindowS*1000), 4915)
	})
	// The same where the client may have one request in flight only: they leave late, which is
	// part of their latency, and the report says whose delay it is.
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		c := config(stall(&begin))
		c.Arrivals, c.Duration, c.MaxInFlight = arrivals(10), 5*time.Second, 1
		var second Record
		c.Done = func(r Record) {
			if r.Conversation == 11 {
				second = r
			}
		}
		r := Run(t.Context(), c)
		// Due at 1.1 s, sent when that of 1.0 s has ended: at 3.015 s.
		if second.Late().Round(time.Microsecond) != 1915*time.Millisecond || second.TTFT().Round(time.Microsecond) != 1925*time.Millisecond {
			t.Errorf("sent %s late, first token after %s", second.Late(), second.TTFT())
		}
		if r.Requests != 50 || r.Client.MaxInFlight != 1 || r.Client.Held < 20 || len(r.Client.Limited) != 2 || !strings.Contains(r.Client.Limited[1], "requests left 1873 ms late") {
			t.Errorf("%d requests, %d held, %q", r.Requests, r.Client.Held, r.Client.Limited)
		}
	})
}

// Turns follow each other with pauses, and carry what was said before.
func TestConversations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []openai.Request
		answer := steady(100*time.Millisecond, 10*time.Millisecond)
		c := config(func(ctx context.Context, q openai.Request, each func(openai.Delta) error) (openai.Answer, error) {
			asked = append(asked, q)
			return answer(ctx, q, each)
		})
		c.Source = workload.Synthetic{Input: workload.Fixed(10), Output: workload.Fixed(4), Turns: 3, Prefixes: 1}
		c.Concurrency, c.Conversations, c.Think = 1, 1, 2*time.Second
		var records []Record
		c.Done = func(r Record) { records = append(records, r) }
		r := Run(t.Context(), c)
		if r.Requests != 3 || len(asked) != 3 {
			t.Fatalf("%+v", r)
		}
		for k, rec := range records {
			due := time.Duration(k) * (135*time.Millisecond + 2*time.Second)
			if rec.Turn != k || rec.Due != due || rec.Sent != due || rec.TTFT() != 100*time.Millisecond || rec.WantInput != 10+14*k || rec.Input != 11*k+10 {
				t.Errorf("turn %d: %+v", k, rec)
			}
			q := asked[k]
			if len(q.Messages) != 2*k+1 || q.Messages[2*k].Role != "user" || k > 0 && (q.Messages[2*k-1] != openai.Message{Role: "assistant", Content: "xxxx"}) || !q.IgnoreEOS || q.MinTokens != 4 || q.MaxTokens != 4 || q.Model != "m" {
				t.Errorf("turn %d asked %+v", k, q)
			}
		}
	})
}

// A conversation ends with a turn that fails.
func TestConversationsEndWithAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(func(context.Context, openai.Request, func(openai.Delta) error) (openai.Answer, error) {
			return openai.Answer{}, errors.New("no")
		})
		c.Source = workload.Synthetic{Input: workload.Fixed(1), Output: workload.Fixed(1), Turns: 5, Prefixes: 1}
		c.Concurrency, c.Conversations, c.ExactLength, c.Text = 1, 2, false, true
		if r := Run(t.Context(), c); r.Requests != 2 || r.Errors[KindOther] != 2 || r.API != "completions" {
			t.Errorf("%+v", r)
		}
	})
}

// A load that is stopped reports what it did. What was in flight is no failure, and no
// goroutine is left: synctest would not return.
func TestInterrupted(t *testing.T) {
	for name, closed := range map[string]bool{"open": false, "closed": true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3140*time.Millisecond)
			defer cancel()
			c := config(steady(100*time.Millisecond, 10*time.Millisecond))
			if closed {
				c.Concurrency = 1
			} else {
				c.Arrivals = arrivals(10)
			}
			r := Run(ctx, c)
			want := Result{Requests: 32, Succeeded: 31, Stopped: 1}
			if closed { // one each 135 ms
				want = Result{Requests: 24, Succeeded: 23, Stopped: 1}
			}
			if !r.Interrupted || r.Requests != want.Requests || r.Succeeded != want.Succeeded || r.Failed != 0 || r.Stopped != want.Stopped {
				t.Errorf("%s: %+v", name, r.Result)
			}
		})
	}
}

// Nothing succeeded: the report has no number that is none, and can be encoded.
func TestNothingSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(func(ctx context.Context, _ openai.Request, _ func(openai.Delta) error) (openai.Answer, error) {
			<-ctx.Done()
			return openai.Answer{}, context.Cause(ctx)
		})
		c.Arrivals, c.Duration, c.Timeout, c.SLO = arrivals(2), 2*time.Second, 3*time.Second, SLO{TTFT: time.Second}
		c.Phases, c.PhaseLength = 2, time.Second
		r := Run(t.Context(), c)
		text, err := json.Marshal(r)
		if err != nil || r.Failed != 4 || r.Errors[KindTimeout] != 4 || r.TTFT != nil || r.Goodput.Share != 0 || r.Phases[1].Failed != 2 {
			t.Errorf("%s, %v", text, err)
		}
		near(t, "window", math.Round(r.WindowS*1e3), 4500)
		empty := config(nil)
		empty.Arrivals = func() (time.Duration, bool) { return 0, false }
		if text, err := json.Marshal(Run(t.Context(), empty)); err != nil || !strings.Contains(string(text), `"requests_per_s":0,`) {
			t.Errorf("%s, %v", text, err)
		}
	})
}

// Requests belong to the phase in which they were due.
func TestPhases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		c := config(func(ctx context.Context, q openai.Request, each func(openai.Delta) error) (openai.Answer, error) {
			return steady(10*time.Millisecond+time.Since(begin).Truncate(time.Second)/10, 0)(ctx, q, each)
		})
		c.Arrivals = arrival.New(arrival.Ramp{From: 0, To: 40, Over: 4 * time.Second}, false, 0).Next
		c.Duration, c.Phases, c.PhaseLength, c.SLO = 5*time.Second, 4, time.Second, SLO{TTFT: 250 * time.Millisecond}
		r := Run(t.Context(), c)
		// The ramp brings 5, 15, 25 and 35; then 40 come in the second that belongs to the last phase.
		for i, want := range []struct {
			n    int
			ttft float64
			good float64
		}{{5, 10, 1}, {15, 110, 1}, {25, 210, 1}, {75, 410, 0}} {
			p := r.Phases[i]
			if p.FromS != float64(i) || p.ToS != float64(i+1) || p.Requests < want.n-1 || p.Requests > want.n+1 || p.Goodput.Share != want.good {
				t.Errorf("phase %d: %+v", i, p)
			}
			near(t, "TTFT", math.Round(p.TTFT.Max), want.ttft)
			near(t, "rate", p.RequestsPerS, float64(p.Requests))
		}
		if r.Requests < 119 || r.Requests > 121 {
			t.Errorf("%d requests", r.Requests)
		}
	})
}

// Chunks of several tokens: where the server counts them with each chunk, the time between
// two is that of each of their tokens; where it does not, that of chunks.
func TestSeveralTokensAChunk(t *testing.T) {
	for counts, itl := range map[bool]float64{true: 10, false: 40} {
		synctest.Test(t, func(t *testing.T) {
			c := config(func(ctx context.Context, _ openai.Request, each func(openai.Delta) error) (openai.Answer, error) {
				a := openai.Answer{Finish: "stop", Usage: &openai.Usage{Prompt: 3, Completion: 13}}
				for i := range 4 {
					pause(ctx, 40*time.Millisecond)
					d := openai.Delta{Reasoning: "x"}
					if counts {
						d.Tokens = 1 + 4*i
					}
					_ = each(d)
				}
				return a, nil
			})
			c.Concurrency, c.Conversations = 1, 1
			r := Run(t.Context(), c)
			near(t, "ITL", r.ITL.P50.Value, itl)
			near(t, "TPOT", r.TPOT.P50.Value, 10)
			near(t, "tokens a chunk", r.TokensPerChunk, 13./4)
			if want := 120 / int(itl); r.ITL.Count != want {
				t.Errorf("%d times between tokens, want %d", r.ITL.Count, want)
			}
		})
	}
}

// A server that counts nothing: tokens are chunks, and the report says so.
func TestUncounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(func(_ context.Context, _ openai.Request, each func(openai.Delta) error) (openai.Answer, error) {
			_ = each(openai.Delta{Text: "a"})
			_ = each(openai.Delta{Text: "b"})
			return openai.Answer{Finish: "stop"}, nil
		})
		c.Concurrency, c.Conversations = 1, 3
		if r := Run(t.Context(), c); r.Uncounted != 3 || r.Output.Total != 6 || r.Input.Real != nil || r.Output.Real.Mean.Value != 2 || r.Output.WantedMean != 4 {
			t.Errorf("%+v", r.Result)
		}
	})
}

func TestCalibrate(t *testing.T) {
	var mu sync.Mutex
	var asked []openai.Request
	c := config(func(_ context.Context, q openai.Request, _ func(openai.Delta) error) (openai.Answer, error) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, q)
		return openai.Answer{Usage: &openai.Usage{Prompt: 21 + 2*len(strings.Fields(q.Messages[0].Content))}}, nil
	})
	s, ok, err := Calibrate(t.Context(), c, 1000)
	if err != nil || !ok || s != (workload.Scale{PerWord: 2, Overhead: 21}) || asked[0].MaxTokens != 1 || !asked[1].IgnoreEOS || asked[1].MinTokens != 1 || asked[0].Model != "m" {
		t.Errorf("%+v, %t, %v; asked %+v", s, ok, err, asked)
	}
	if n := len(strings.Fields(asked[1].Messages[0].Content)); n != 500 {
		t.Errorf("%d words, want half of the longest prompt", n)
	}
	c.Text = true
	c.Ask = func(_ context.Context, q openai.Request, _ func(openai.Delta) error) (openai.Answer, error) {
		if q.Prompt == "" || q.Messages != nil {
			t.Errorf("asked %+v", q)
		}
		return openai.Answer{}, nil
	}
	if _, ok, err := Calibrate(t.Context(), c, 10); ok || err != nil {
		t.Errorf("without usage: %t, %v", ok, err)
	}
	no := fmt.Errorf("no")
	c.Ask = func(context.Context, openai.Request, func(openai.Delta) error) (openai.Answer, error) {
		return openai.Answer{}, no
	}
	if _, _, err := Calibrate(t.Context(), c, 10); !errors.Is(err, no) {
		t.Errorf("got %v", err)
	}
}

// A duration ends a closed loop, and the window ends with the last answer.
func TestDurationAndWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(steady(100*time.Millisecond, 20*time.Millisecond))
		c.Concurrency, c.Duration = 1, time.Second
		r := Run(t.Context(), c)
		if r.Requests != 7 || r.Succeeded != 7 { // each 165 ms, the last one at 990 ms
			t.Errorf("%+v", r.Result)
		}
		near(t, "window", r.WindowS, 7*0.165)
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		c := config(steady(100*time.Millisecond, 20*time.Millisecond))
		c.Arrivals = arrivals(0.1)
		r := Run(ctx, c)
		if r.Succeeded != 2 || !r.Interrupted {
			t.Errorf("%+v", r.Result)
		}
		near(t, "window", math.Round(r.WindowS*1000), 10165)
	})
}
