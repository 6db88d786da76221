package bench

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/bench"
	"github.com/dynctl/dynctl/internal/bench/arrival"
	"github.com/dynctl/dynctl/internal/bench/workload"
	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/openai"
)

// ramp is the report of a load in virtual time, on a server that takes longer and longer and
// refuses one request of twenty.
func ramp() *bench.Report {
	begin, n := time.Now(), 0
	c := bench.Config{
		Model: "tiny", Source: workload.Synthetic{Input: workload.Fixed(100), Output: workload.Fixed(8), Turns: 1, Prefixes: 1}, Scale: workload.Scale{PerWord: 1},
		Arrivals: arrival.New(arrival.Ramp{From: 2, To: 10, Over: 20 * time.Second}, false, 0).Next, Duration: 20 * time.Second, MaxInFlight: 100, Timeout: time.Minute,
		SLO: bench.SLO{TTFT: 150 * time.Millisecond, ITL: 20 * time.Millisecond}, Phases: 4, PhaseLength: 5 * time.Second, Seed: 7,
	}
	c.Ask = func(_ context.Context, q openai.Request, each func(openai.Delta) error) (openai.Answer, error) {
		if n++; n%20 == 0 {
			return openai.Answer{}, &openai.Error{Status: 503, Message: "Busy."}
		}
		time.Sleep(50*time.Millisecond + time.Since(begin)/100)
		for range q.MaxTokens {
			_ = each(openai.Delta{Text: "x"})
			time.Sleep(10 * time.Millisecond)
		}
		return openai.Answer{Finish: "length", Usage: &openai.Usage{Prompt: 101, Completion: q.MaxTokens, Cached: new(25)}}, nil
	}
	r := bench.Run(context.Background(), c)
	r.URL, r.Load.Arrivals = "http://127.0.0.1:8000", "2 to 10 requests/s over 20s, constant"
	return r
}

func TestGoldenReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := ramp()
		for name, width := range map[string]int{"report-100": 100, "report-pipe": 0} {
			var out, errs strings.Builder
			p := &output.Printer{Streams: term.Streams{Out: &out, Err: &errs, OutTTY: width > 0, Measure: func() (int, int) { return width, 30 }}, Format: "table", Color: "never"}
			o := Options{Session: &session.Session{Out: p}}
			if err := o.print(r); err != nil {
				t.Fatal(err)
			}
			clitest.Golden(t, name, out.String()+errs.String())
		}
	})
}

// The line of progress says what was done, and how much is left.
func TestGoldenProgress(t *testing.T) {
	l := load{Config: bench.Config{Model: "tiny", Conversations: 40}, arrivals: "2 requests/s, poisson", turns: 2}
	s := bench.Status{Elapsed: 15 * time.Second, Started: 24, Succeeded: 18, Failed: 2, InFlight: 4, RequestsPerS: 1.2, TokensPer: 345.6}
	o := Options{}
	clitest.Golden(t, "progress", clitest.Draw(o.screen(l, s)))
	l.Conversations, l.whole = 0, time.Minute
	if got := l.share(s); *got != 0.25 {
		t.Errorf("share %v", *got)
	}
	if l.whole = 0; l.share(s) != nil {
		t.Error("a share of what has no end")
	}
}
