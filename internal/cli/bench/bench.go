package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/bench"
	"github.com/dynctl/dynctl/internal/bench/workload"
	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/frontend"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/openai"
	"github.com/dynctl/dynctl/internal/version"
)

const action = "cannot measure"

// Options is a load and where it goes.
type Options struct {
	Session *session.Session

	URL, Model, Key, API string

	Rate              float64
	Arrival           string // poisson or constant
	Ramp, Sine, Trace string
	Speed             float64
	Concurrency       int
	MaxInFlight       int
	Requests, Warmup  int
	Duration          time.Duration
	Input, Output     string
	Share             float64
	Prefixes          int
	Turns             int
	Think             time.Duration
	Seed              uint64
	NoIgnoreEOS       bool
	SLO               string
	Phases            int
	Timeout           time.Duration
	Save              []string
	Progress          string
	Compare           bool
	Files             []string // reports to compare
}

// Command makes dynctl bench.
func Command(a *command.App) *cobra.Command {
	o := &Options{}
	cmd := a.Command(command.Verb{
		Use: "bench [A.json B.json]", Short: "Measure a server under load: latency, throughput, goodput", Group: command.GroupLook,
		Long: `The server is the cluster's frontend, or any other that is compatible with OpenAI's API (--url).
With --rate, --ramp, --sine or --trace requests are sent when they are due, however slow the
answers are, and latencies count from then; with --concurrency, so many are always in flight.
Without one of these, 4 are. The load lasts 30 s, the time of the ramp or of a period, or the
whole trace, unless --requests or --duration say otherwise. Ctrl-C ends it with the report.

Lengths are a number, uniform:LOW:HIGH, normal:MEAN:DEVIATION or lognormal:MEAN:DEVIATION.
Prompts are common words; two requests before the load find out how the server counts them.
Of a trace with --rate, --ramp, --sine or --concurrency only the prompts count. The key of a
server at --url is --api-key, $OPENAI_API_KEY or $DYNAMOD_FRONTEND_API_KEY.`,
		Examples: []string{
			"dynctl bench --rate 5 --isl 512 --osl 64 --slo ttft=300ms,itl=40ms",
			"dynctl bench --url http://10.0.0.5:8000 --ramp 1:20:5m --save run.json --save run.svg",
			"dynctl bench --compare before.json after.json",
		},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 0 && len(args) != 2 {
				return errors.New("name two reports to compare, or nothing")
			}
			return nil
		},
		Complete: cobra.FixedCompletions([]cobra.Completion{"json"}, cobra.ShellCompDirectiveFilterFileExt),
		See:      []string{"dynctl top", "dynctl explain", "dynctl chat"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session, o.Files = s, args
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.Float64Var(&o.Rate, "rate", 0, "send so many requests a second")
	command.Choice(fs, &o.Arrival, "arrival", "", "poisson", "how far requests are apart", []string{"poisson", "constant"})
	fs.StringVar(&o.Ramp, "ramp", "", "change the rate evenly, as 1:20:5m")
	fs.StringVar(&o.Sine, "sine", "", "swing the rate between two in a period, as 2:10:10m")
	fs.StringVar(&o.Trace, "trace", "", "replay a file in the format of Mooncake")
	fs.Float64Var(&o.Speed, "speed", 1, "replay the trace so many times as fast")
	command.Count(fs, &o.Concurrency, "concurrency", 0, "keep so many requests in flight")
	command.Count(fs, &o.Requests, "requests", 0, "end after so many requests; of --turns, conversations")
	command.Duration(fs, &o.Duration, "duration", 0, "end after this time")
	command.Count(fs, &o.Warmup, "warmup", 0, "send so many before the load, unmeasured")
	command.Count(fs, &o.MaxInFlight, "max-in-flight", 1024, "wait with requests beyond so many in flight")
	fs.StringVar(&o.Input, "isl", "256", "tokens of prompts: a number, or as normal:512:64")
	fs.StringVar(&o.Output, "osl", "64", "tokens of answers")
	fs.Float64Var(&o.Share, "prefix-share", 0, "part of each prompt that is a common beginning, 0 to 1")
	command.Count(fs, &o.Prefixes, "prefixes", 1, "different common beginnings")
	command.Count(fs, &o.Turns, "turns", 1, "turns of each conversation")
	command.Duration(fs, &o.Think, "think", 0, "pause between an answer and the next turn")
	fs.Uint64Var(&o.Seed, "seed", 0, "draw the same load again (default: random)")
	fs.BoolVar(&o.NoIgnoreEOS, "no-ignore-eos", false, "do not send ignore_eos and min_tokens: let the model end its answers")
	fs.StringVar(&o.SLO, "slo", "", "count answers within limits, as ttft=300ms,itl=40ms,e2e=5s")
	command.Count(fs, &o.Phases, "phases", 0, "report parts of the time (default: 5 of a ramp, a period or a trace)")
	fs.StringArrayVar(&o.Save, "save", nil, "write a file: .json the report, .csv each request, .svg a plot")
	fs.BoolVar(&o.Compare, "compare", false, "compare two reports that --save wrote")
	command.Progress(fs, &o.Progress)
	fs.StringVar(&o.URL, "url", "", "a server at this address (default: the cluster's)")
	fs.StringVar(&o.Key, "api-key", "", "key of the server")
	fs.StringVar(&o.Model, "model", "", "name of the model (default: the only one)")
	command.Choice(fs, &o.API, "api", "", "chat", "endpoint", []string{"chat", "completions"})
	command.Duration(fs, &o.Timeout, "timeout", 5*time.Minute, "give up a request after this time")
	command.Grouped(fs, "Load", "rate", "arrival", "ramp", "sine", "trace", "speed", "concurrency", "requests", "duration", "warmup", "max-in-flight")
	command.Grouped(fs, "Prompts", "isl", "osl", "prefix-share", "prefixes", "turns", "think", "seed", "no-ignore-eos")
	command.Grouped(fs, "Report", "slo", "phases", "save", "compare", "progress")
	command.Grouped(fs, "Server", "url", "api-key", "model", "api", "timeout")
	command.Rare(fs, "arrival", "speed", "warmup", "max-in-flight", "prefixes", "think", "no-ignore-eos", "phases", "progress", "seed", "api", "timeout", "compare", "sine", "api-key", "turns", "prefix-share", "model")
	_ = cmd.RegisterFlagCompletionFunc("model", complete.Models(a)) // fails for unknown flags only
	return cmd
}

// Run sends the load, or compares reports.
func (o *Options) Run(ctx context.Context) error {
	if o.Compare != (len(o.Files) == 2) {
		return &exit.UsageError{Text: "--compare and two reports belong together", Tries: []string{"dynctl bench --compare before.json after.json"}}
	}
	if o.Compare {
		return o.compare()
	}
	l, err := o.plan()
	if err != nil {
		return err
	}
	f, err := o.open()
	if err != nil {
		return err
	}
	defer f.close()
	c, err := o.server(ctx)
	if err != nil {
		return err
	}
	c.Limit(max(o.Concurrency, o.MaxInFlight))
	model, window, err := o.model(ctx, c)
	if err != nil {
		return err
	}
	l.Model, l.Ask, l.Text = model, c.Chat, o.API == "completions"
	if l.Text {
		l.Ask = c.Complete
	}
	scale, counts, err := o.calibrate(ctx, c, l.Config, window)
	if err != nil {
		return err
	}
	l.Scale, l.Done = scale, f.add
	live := o.watch(&l)
	r := bench.Run(ctx, l.Config)
	live.Close()
	r.URL, r.Program = c.URL(), version.String()
	r.Load.Arrivals, r.Load.Prompts, r.Load.Answers = l.arrivals, l.prompts, l.answers
	if counts {
		r.Load.Scale = &scale
	}
	if err := errors.Join(o.print(r), f.finish(r)); err != nil {
		return err
	}
	switch {
	case r.Interrupted:
		return &exit.Stopped{Text: "stopped; the report is of what was done", Err: context.Cause(ctx)}
	case r.Succeeded == 0:
		return exit.Silent{Code: exit.Failed}
	}
	return nil
}

// server returns a client of the server.
func (o *Options) server(ctx context.Context) (*openai.Client, error) {
	key := o.Key
	if key == "" && o.URL != "" {
		key = o.Session.Env.Variables().Get("OPENAI_API_KEY")
	}
	return frontend.Find(ctx, o.Session, frontend.Place{Address: o.URL, Key: key}, action)
}

// model returns the name of the model, and the most tokens of its context if that is known. A
// server that lists no models takes any name.
func (o *Options) model(ctx context.Context, c *openai.Client) (string, int, error) {
	m, err := frontend.Model(ctx, o.Session, c, action, o.Model, o.Timeout)
	var said *openai.Error
	if o.Model != "" && errors.As(err, &said) && slices.Contains([]int{404, 405, 501}, said.Status) {
		return o.Model, 0, nil
	}
	return m.ID, m.ContextWindow, err
}

// calibrate learns how the server counts tokens. counts is false if it does not tell.
func (o *Options) calibrate(ctx context.Context, c *openai.Client, l bench.Config, window int) (scale workload.Scale, counts bool, err error) {
	longest := 1024
	if window > 0 {
		longest = min(longest, window/4)
	}
	scale, counts, err = bench.Calibrate(ctx, l, longest)
	var said *openai.Error
	switch {
	case err == nil && !counts:
		o.Session.Out.Warn("%s does not count the tokens of prompts: they have as many words as they should have tokens", c.URL())
		return scale, false, nil
	case err == nil:
		return scale, true, nil
	case ctx.Err() != nil:
		return scale, false, context.Cause(ctx)
	}
	err = frontend.Failure(o.Session, action, c, err)
	var f *exit.Failure
	if errors.As(err, &said) && (said.Status == 400 || said.Status == 422) && !o.NoIgnoreEOS && errors.As(err, &f) {
		f.Tries = append([]string{"--no-ignore-eos   if the server does not know ignore_eos and min_tokens"}, f.Tries...)
	}
	return scale, false, err
}

// usage is a mistake in a flag.
func usage(flag string, err error) error {
	return &exit.UsageError{Text: fmt.Sprintf("--%s: %s", flag, err)}
}
