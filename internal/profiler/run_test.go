package profiler

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/openai"
	"github.com/dynctl/dynctl/internal/profile"
)

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got/want-1) <= tolerance) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// Times are those of the server's costs, to the nanosecond of its steps, and the profile has
// these costs. Nothing is asked for twice: no prompt is in a cache.
func TestRunFindsTheServersCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDouble()
		c := d.config()
		r, err := d.run(t.Context(), t, c)
		if err != nil || len(r.Left) > 0 || len(r.Measured) != len(c.Plan) {
			t.Fatalf("%d of %d points, %+v, %v", len(r.Measured), len(c.Plan), r.Left, err)
		}
		truth := &profile.Profile{Limits: d.limits, Step: d.costs, Overheads: profile.Overheads{Frontend: d.request.Seconds()}}
		for _, m := range r.Measured {
			if m.Kind == Prefill {
				near(t, m.String(), m.Seconds, truth.TTFT(m.Prompt), 1e-6)
				if m.Prompt != m.Tokens || m.Cached != 0 {
					t.Errorf("%+v", m)
				}
				continue
			}
			want := d.costs.StepSeconds(profile.Work{Decodes: m.Streams, DecodeContext: int(math.Round(m.Context * float64(m.Streams)))})
			near(t, m.String(), m.Seconds, want, 5e-5) // contexts are rounded
			if m.Counted < window*m.Streams || math.Abs(m.Context-float64(m.Tokens)) > float64(window) {
				t.Errorf("%+v", m)
			}
		}
		p, err := Build(d.subject(), r.Measured)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "step", p.Step.Step, d.costs.Step, 1e-3)
		near(t, "decode", p.Step.Decode, d.costs.Decode, 1e-3)
		near(t, "context", p.Step.DecodeContext, d.costs.DecodeContext, 1e-3)
		near(t, "token", p.Step.Token, d.costs.Token, 1e-3)
		near(t, "chunk context", p.Step.ChunkContext, d.costs.ChunkContext, 1e-3)
		near(t, "request", p.Overheads.Frontend, d.request.Seconds(), 1e-2)
		near(t, "TTFT from the table", p.TTFT(1024), truth.TTFT(1024), 1e-6)
		near(t, "prefill throughput", p.PrefillThroughput(1024), 1024/truth.TTFT(1024), 1e-6)
		if p.Fitted.P95Error > 1e-3 || len(p.Fitted.Unseen) > 0 {
			t.Errorf("%+v", p.Fitted)
		}
		seen := map[string]int{}
		for _, q := range d.asked {
			seen[q.Messages[0].Content]++
			if q.MinTokens != q.MaxTokens || !q.IgnoreEOS {
				t.Fatalf("%+v", q)
			}
			if n := seen[q.Messages[0].Content]; n > 2 || n > 1 && q.MaxTokens == 1 {
				t.Fatal("a prompt is asked for again")
			}
		}
	})
}

// A server that is twice as slow gives twice the times, and so do one without a prefix cache and
// one that nobody can watch.
func TestRunOnOtherServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := func(change func(*double, *Config)) []Measurement {
			d := newDouble()
			c := d.config()
			change(d, &c)
			r, err := d.run(t.Context(), t, c)
			if err != nil || len(r.Left) > 0 {
				t.Fatalf("%+v, %v", r.Left, err)
			}
			return r.Measured
		}
		base := run(func(*double, *Config) {})
		slow := run(func(d *double, _ *Config) {
			d.request *= 2
			d.costs = profile.Costs{Step: 2 * d.costs.Step, Decode: 2 * d.costs.Decode, DecodeContext: 2 * d.costs.DecodeContext, Token: 2 * d.costs.Token, ChunkContext: 2 * d.costs.ChunkContext}
		})
		for _, m := range slow {
			j := slices.IndexFunc(base, func(b Measurement) bool { return b.Point == m.Point })
			if m.Kind == Decode && m.Context != base[j].Context {
				near(t, m.String(), m.Seconds, 2*base[j].Seconds, 1e-3) // what happens at the same moment comes in any order: a token more or less
				continue
			}
			near(t, m.String(), m.Seconds, 2*base[j].Seconds, 5e-5) // contexts are rounded
		}
		for name, change := range map[string]func(*double, *Config){
			"no cache":   func(d *double, _ *Config) { d.noCache = true },
			"no watcher": func(_ *double, c *Config) { c.Others = nil },
		} {
			for _, m := range run(change) {
				if m.Kind == Prefill {
					continue
				}
				want := newDouble().costs.StepSeconds(profile.Work{Decodes: m.Streams, DecodeContext: int(math.Round(m.Context * float64(m.Streams)))})
				near(t, name+": "+m.String(), m.Seconds, want, 5e-5) // contexts are rounded
			}
		}
	})
}

// A token that comes in several pieces is one token.
func TestTokensInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDouble()
		d.pieces = 2
		r, err := d.run(t.Context(), t, d.config())
		if err != nil || len(r.Left) > 0 {
			t.Fatalf("%+v, %v", r.Left, err)
		}
		for _, m := range r.Measured {
			if m.Kind == Decode { // the last piece of a token counts against the first one of another: half a token of the window
				want := d.costs.StepSeconds(profile.Work{Decodes: m.Streams, DecodeContext: int(math.Round(m.Context * float64(m.Streams)))})
				near(t, m.String(), m.Seconds, want, 1.0/leastWindow)
			}
		}
	})
}

// A point that takes more than its share of the budget comes after those that do not: it would take the place of many.
func TestLongPointsComeLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDouble()
		c := d.config()
		c.Budget = 30 * time.Second
		r, err := d.run(t.Context(), t, c)
		if err != nil {
			t.Fatal(err)
		}
		share := c.Budget.Seconds() / pointShare
		long := slices.IndexFunc(r.Measured, func(m Measurement) bool { return m.TookS > 1.5*share }) // one that took its share, and no more, was not expected to
		if long < 0 {
			t.Fatal("no point takes long")
		}
		for _, m := range r.Measured[long:] {
			if m.TookS < share {
				t.Errorf("%s took %.2f s and came after one of %.2f s", m, m.TookS, r.Measured[long].TookS)
			}
		}
	})
}

// A run that is cut after any point goes on where it was, and has measured all once in the end.
func TestRunGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDouble()
		d.limits.MaxContext, d.limits.MaxSeqs = 1024, 4
		cut := errors.New("cut")
		whole, err := d.run(t.Context(), t, d.config())
		if err != nil {
			t.Fatal(err)
		}
		for k := range whole.Measured {
			c := d.config()
			n := 0
			c.Done = func(Measurement) error {
				if n++; n > k {
					return cut
				}
				return nil
			}
			first, err := d.run(t.Context(), t, c)
			if !errors.Is(err, cut) || len(first.Measured) != k+1 || len(first.Measured)+len(first.Left) != len(c.Plan) {
				t.Fatalf("cut at %d: %+v, %v", k, first, err)
			}
			c = d.config()
			c.Have = first.Measured
			again := 0
			c.Done = func(Measurement) error { again++; return nil }
			r, err := d.run(t.Context(), t, c)
			if err != nil || len(r.Left) > 0 || len(r.Measured) != len(c.Plan) || again != len(c.Plan)-k-1 {
				t.Fatalf("cut at %d: %d points, %d of them new, %+v, %v", k, len(r.Measured), again, r.Left, err)
			}
			for i, m := range r.Measured {
				if slices.ContainsFunc(r.Measured[:i], func(o Measurement) bool { return o.Point == m.Point }) {
					t.Fatalf("%s twice", m.Point)
				}
			}
		}
		c := d.config()
		c.Have = whole.Measured
		asked := len(d.asked)
		if r, err := d.run(t.Context(), t, c); err != nil || len(r.Measured) != len(c.Plan) || len(d.asked) != asked {
			t.Errorf("a whole sweep asks for %d more, %v", len(d.asked)-asked, err)
		}
	})
}

// The budget is kept, and what it leaves is a grid: both ends of prompts, and more points with
// more time.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		points := 0
		for _, budget := range []time.Duration{3 * time.Second, 10 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute} {
			d := newDouble()
			c := d.config()
			c.Budget = budget
			begin := time.Now()
			r, err := d.run(t.Context(), t, c)
			if err != nil || time.Since(begin) > budget+time.Second || len(r.Measured)+len(r.Left) != len(c.Plan) || len(r.Measured) < points {
				t.Fatalf("%s: %s, %d points, %v", budget, time.Since(begin), len(r.Measured), err)
			}
			points = len(r.Measured)
			p, err := Build(d.subject(), r.Measured)
			if err != nil || len(p.Measured.Prefill.ISL) < 2 || p.Measured.Prefill.ISL[0] > 100 || p.Measured.Prefill.ISL[len(p.Measured.Prefill.ISL)-1] < 3900 {
				t.Fatalf("%s: %+v, %v", budget, r.Measured, err)
			}
			for _, l := range r.Left {
				if l.Why != overBudget {
					t.Errorf("%+v", l)
				}
			}
		}
		if all := len(newDouble().config().Plan); points != all {
			t.Errorf("ten minutes are enough for %d of %d points", points, all)
		}
	})
}

// Whoever stops the run gets at once what was measured.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, after := range []time.Duration{0, time.Millisecond, 700 * time.Millisecond, 20 * time.Second} {
			stop := errors.New("ctrl-c")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(after, func() { cancel(stop) })
			d := newDouble()
			begin, c, seen := time.Now(), d.config(), 0
			c.Watch = func(Status) { seen++ }
			r, err := d.run(ctx, t, c)
			if !errors.Is(err, stop) || time.Since(begin) > after+time.Second || len(r.Measured)+len(r.Left) != len(c.Plan) || seen == 0 {
				t.Errorf("after %s: %s, %d points, %v", after, time.Since(begin), len(r.Measured), err)
			}
			cancel(nil)
		}
	})
}

func TestRefusals(t *testing.T) {
	long := func(q openai.Request) bool { return len(strings.Fields(q.Messages[0].Content)) > 2000 }
	for name, tc := range map[string]struct {
		change func(*double, *Config)
		want   error
		text   string
		left   string // the reason of each point that is left out
	}{
		"long prompts": {func(d *double, _ *Config) {
			d.refuse = func(q openai.Request) error {
				if long(q) {
					return &openai.Error{Status: 400, Message: "This model's context is 2000 tokens."}
				}
				return nil
			}
		}, nil, "", "2000 tokens"},
		"failure": {func(d *double, _ *Config) {
			d.refuse = func(q openai.Request) error {
				if long(q) {
					return &openai.Error{Status: 503, Message: "Busy."}
				}
				return nil
			}
		}, nil, "measure a prompt of ", ""},
		"first request": {func(d *double, _ *Config) {
			d.refuse = func(openai.Request) error { return &openai.Error{Status: 401, Message: "Wrong key."} }
		}, nil, "the first request: ", ""},
		"no usage":        {func(d *double, _ *Config) { d.usage = false }, ErrUncounted, "", ""},
		"too many pieces": {func(d *double, _ *Config) { d.pieces = piecesPerToken + 1 }, ErrWrong, "more pieces", ""},
		"two pieces":      {func(d *double, _ *Config) { d.pieces = 2 }, nil, "", ""},
		"endless prompts": {func(d *double, _ *Config) { d.count = func(u *openai.Usage) { u.Prompt = 1 << 40 } }, ErrWrong, "counts 1099511627776 tokens", ""},
		"no tokens":       {func(d *double, _ *Config) { d.count = func(u *openai.Usage) { u.Completion = 0 } }, ErrWrong, "0 of ", ""},
		"long answers":    {func(d *double, _ *Config) { d.count = func(u *openai.Usage) { u.Completion++ } }, ErrWrong, "9 of 8", ""},
		"all cached":      {func(d *double, _ *Config) { d.count = func(u *openai.Usage) { *u.Cached = u.Prompt } }, ErrWrong, "tokens cached", ""},
		"timeout":         {func(_ *double, c *Config) { c.Timeout = 100 * time.Millisecond }, errTimeout, "", ""},
		"sequences of others": {func(_ *double, c *Config) {
			c.Others = func(context.Context) (Activity, error) { return Activity{Sequences: 2}, nil }
		}, ErrBusy, "it has 2 sequences of others", ""},
		"tokens of others": {func(d *double, c *Config) {
			n := uint64(0)
			c.Others = func(context.Context) (Activity, error) { n += 1000; return Activity{Tokens: n + d.tokens}, nil }
		}, ErrBusy, "others had 1000 tokens computed", ""},
		"few tokens of others": {func(d *double, c *Config) {
			n := uint64(0)
			c.Others = func(context.Context) (Activity, error) { n += strayTokens; return Activity{Tokens: n + d.tokens}, nil }
		}, nil, "", ""},
		"nobody to ask": {func(_ *double, c *Config) {
			c.Others = func(context.Context) (Activity, error) { return Activity{}, errGone }
		}, errGone, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDouble()
				c := d.config()
				tc.change(d, &c)
				r, err := d.run(t.Context(), t, c)
				if fails := tc.want != nil || tc.text != ""; fails != (err != nil) || tc.want != nil && !errors.Is(err, tc.want) || err != nil && !strings.Contains(err.Error(), tc.text) {
					t.Fatalf("%v", err)
				}
				if (tc.left != "") != (len(r.Left) > 0) && err == nil {
					t.Fatalf("left out: %+v", r.Left)
				}
				for _, l := range r.Left {
					if err == nil && !strings.Contains(l.Why, tc.left) {
						t.Errorf("%+v", l)
					}
				}
			})
		})
	}
}

var errGone = errors.New("worker-1 does not answer")

// Sequences that never decode together are no point, and the others are measured.
func TestSequencesThatQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDouble()
		c := d.config()
		d.limits.MaxSeqs = 3 // less than it says
		r, err := d.run(t.Context(), t, c)
		if err != nil || len(r.Left) == 0 {
			t.Fatalf("%+v, %v", r.Left, err)
		}
		for _, l := range r.Left {
			if l.Streams <= 3 || !strings.Contains(l.Why, ErrShort.Error()) {
				t.Errorf("%+v", l)
			}
		}
		for _, m := range r.Measured {
			if m.Streams > 3 {
				t.Errorf("%+v", m)
			}
		}
	})
}
