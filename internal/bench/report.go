package bench

import (
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/bench/stats"
	"github.com/dynctl/dynctl/internal/bench/workload"
)

// Version is that of the JSON form of a report. Fields are only ever added within one.
const Version = 1

// Report is the result of a load. Latencies are in milliseconds, from when requests were
// due, of requests that succeeded.
type Report struct {
	Version int       `json:"version"`
	Started time.Time `json:"started"`
	Program string    `json:"program"` // version of dynctl
	URL     string    `json:"url"`
	Model   string    `json:"model"`
	API     string    `json:"api"` // chat or completions

	Load Load `json:"load"`
	// Interrupted is set when the load was stopped before its end.
	Interrupted bool `json:"interrupted"`
	Result
	Phases []Phase `json:"phases,omitempty"`
	Client Client  `json:"client"`

	points []point
	sorted map[string][]float64 // samples of quantities, for plots
}

// Load says what was sent.
type Load struct {
	Arrivals   string          `json:"arrivals"` // in words
	OpenLoop   bool            `json:"open_loop"`
	Prompts    string          `json:"prompts"`
	Answers    string          `json:"answers"`
	Seed       uint64          `json:"seed"`
	Scale      *workload.Scale `json:"tokens_per_prompt"` // nil if the server counts no tokens
	IgnoreEOS  bool            `json:"ignore_eos"`
	Warmup     int             `json:"warmup"`
	TimeoutS   float64         `json:"timeout_s"`
	MaxFlights int             `json:"max_in_flight"` // conversations
}

// Result is what was measured of a load, or of a phase of it.
type Result struct {
	// WindowS is the time to the end of the last answer, in seconds; that of a phase is its
	// length.
	WindowS   float64        `json:"window_s"`
	Requests  int            `json:"requests"`
	Succeeded int            `json:"succeeded"`
	Failed    int            `json:"failed"`
	Stopped   int            `json:"stopped"` // by the user, in flight
	Errors    map[string]int `json:"errors,omitempty"`
	// ErrorTexts has an example of each kind of error.
	ErrorTexts map[string]string `json:"error_texts,omitempty"`
	Finish     map[string]int    `json:"finish_reasons,omitempty"`

	// Rates are of requests that succeeded; OfferedPerS is of all.
	OfferedPerS  float64 `json:"offered_requests_per_s"`
	RequestsPerS float64 `json:"requests_per_s"`
	InputPerS    float64 `json:"input_tokens_per_s"`
	OutputPerS   float64 `json:"output_tokens_per_s"`

	// These are nil when there is no value.
	TTFT *stats.Summary `json:"ttft_ms"`
	ITL  *stats.Summary `json:"itl_ms"`
	TPOT *stats.Summary `json:"tpot_ms"`
	E2E  *stats.Summary `json:"e2e_ms"`

	Input  Tokens `json:"input_tokens"`
	Output Tokens `json:"output_tokens"`
	// CachedShare is the part of the input that came from prefix caches, where the server tells.
	CachedShare float64 `json:"cached_input_share"`
	// Uncounted requests are those of which the server told no number of tokens: their output is
	// counted by chunks.
	Uncounted      int     `json:"uncounted_requests"`
	TokensPerChunk float64 `json:"tokens_per_chunk"`

	Goodput *Goodput `json:"goodput"` // nil without limits
}

// Tokens are lengths of requests that succeeded.
type Tokens struct {
	WantedMean float64        `json:"wanted_mean"`
	Total      int            `json:"total"`
	Real       *stats.Summary `json:"real"` // nil where the server does not count
}

// Goodput counts the requests that kept all limits.
type Goodput struct {
	SLO          string  `json:"slo"`
	Good         int     `json:"good"`
	Share        float64 `json:"share"` // of all requests that were not stopped
	RequestsPerS float64 `json:"requests_per_s"`
}

// Phase is a part of the time of a load, with the requests that were due in it.
type Phase struct {
	FromS float64 `json:"from_s"`
	ToS   float64 `json:"to_s"`
	Result
}

// Client says how punctual the client itself was.
type Client struct {
	// Late is by how much requests left later than they were due.
	Late *stats.Summary `json:"late_ms"`
	// Lag is by how much goroutines of the client woke up late: tokens are seen as late.
	Lag         *stats.Summary `json:"lag_ms"`
	MaxInFlight int            `json:"most_in_flight"` // requests at once
	Held        int            `json:"held"`           // conversations that waited for max_in_flight
	// Limited says why the client, and not the server, may have made the figures; empty if it
	// kept up.
	Limited []string `json:"limited"`
}

// report sums up what was measured.
func (r *run) report(took time.Duration, lag *lag, interrupted bool) *Report {
	window := took
	if r.tally.ok > 0 {
		window = r.tally.last
	}
	out := &Report{
		Version: Version, Started: r.begin, Model: r.Model, API: "chat", Interrupted: interrupted,
		Load: Load{
			OpenLoop: r.Arrivals != nil, Seed: r.Seed, IgnoreEOS: r.ExactLength, Warmup: r.Warmup, TimeoutS: r.Timeout.Seconds(), MaxFlights: r.MaxInFlight,
		},
		Result: r.tally.result(window, r.SLO),
		Client: Client{Late: r.tally.delay.Summary(r.tally.requests), Lag: lag.late.Summary(lag.late.Count()), MaxInFlight: r.most, Held: r.held, Limited: []string{}},
		points: r.tally.points,
		sorted: map[string][]float64{"ttft": r.tally.ttft.Sorted(), "itl": r.tally.itl.Sorted()},
	}
	if r.Text {
		out.API = "completions"
	}
	for i, p := range r.phases {
		from := time.Duration(i) * r.PhaseLength
		out.Phases = append(out.Phases, Phase{from.Seconds(), (from + r.PhaseLength).Seconds(), p.result(r.PhaseLength, r.SLO)})
	}
	out.Client.judge(out.TTFT)
	return out
}

// Limits of a client's delays at the 99th percentile: that in milliseconds, and that as part
// of the median time to the first token. Delays above both make the figures the client's.
const (
	tolerableMS    = 10
	tolerableShare = 0.1
)

// judge says why the client may have made the figures.
func (c *Client) judge(ttft *stats.Summary) {
	limit := float64(tolerableMS)
	if ttft != nil {
		limit = max(limit, ttft.P50.Value*tolerableShare)
	}
	if c.Held > 0 {
		c.Limited = append(c.Limited, fmt.Sprintf("%d conversations waited because the most allowed were in flight", c.Held))
	}
	for _, d := range []struct {
		late *stats.Summary
		text string
	}{{c.Late, "requests left %.0f ms late (p99)"}, {c.Lag, "the client's machine is busy: tokens are seen up to %.0f ms late (p99)"}} {
		if d.late != nil && d.late.P99.Value > limit {
			c.Limited = append(c.Limited, fmt.Sprintf(d.text, d.late.P99.Value))
		}
	}
}

// result sums up a tally of some time.
func (t *tally) result(window time.Duration, slo SLO) Result {
	r := Result{
		WindowS: window.Seconds(), Requests: t.requests, Succeeded: t.ok, Failed: t.failed, Stopped: t.interrupted,
		Errors: t.errors, ErrorTexts: t.texts, Finish: t.finish, Uncounted: t.ok - t.counted,
		TTFT: t.ttft.Summary(t.ok), TPOT: t.tpot.Summary(t.ok), E2E: t.e2e.Summary(t.ok),
		// Times between the tokens of one answer are alike: their intervals count answers.
		ITL:   t.itl.Summary(t.ok),
		Input: Tokens{Total: t.input, Real: t.inputs.Summary(t.ok)}, Output: Tokens{Total: t.output, Real: t.outputs.Summary(t.ok)},
	}
	share := func(a, b float64) float64 {
		if b <= 0 {
			return 0
		}
		return a / b
	}
	r.OfferedPerS, r.RequestsPerS = share(float64(t.requests), r.WindowS), share(float64(t.ok), r.WindowS)
	r.InputPerS, r.OutputPerS = share(float64(t.input), r.WindowS), share(float64(t.output), r.WindowS)
	r.Input.WantedMean, r.Output.WantedMean = share(float64(t.wantInput), float64(t.ok)), share(float64(t.wantOutput), float64(t.ok))
	r.CachedShare, r.TokensPerChunk = share(float64(t.cached), float64(t.input)), share(float64(t.output), float64(t.chunks))
	if slo != (SLO{}) {
		r.Goodput = &Goodput{SLO: slo.String(), Good: t.good, Share: share(float64(t.good), float64(t.requests-t.interrupted)), RequestsPerS: share(float64(t.good), r.WindowS)}
	}
	return r
}
