package profile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/bench"
	"github.com/dynctl/dynctl/internal/bench/workload"
	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/frontend"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/openai"
	"github.com/dynctl/dynctl/internal/profiler"
)

const action = "cannot measure"

// Options say what to measure, and where the result goes.
type Options struct {
	Session *session.Session

	Worker, URL, Model, Key, API string
	NoIgnoreEOS                  bool
	Timeout, Budget              time.Duration
	// Limits of a server at URL; 0 is not given.
	KVTokens, BlockSize, MaxSeqs, MaxBatchTokens, MaxContext, Devices int

	Save, Table, SVG string // files; Table is a folder
	Again            bool
	// Teach and Forget are models of the cluster: the planner is taught, or forgets, how fast
	// their workers are.
	Teach, Forget string
	Progress      string
}

// Command makes dynctl profile.
func Command(a *command.App) *cobra.Command {
	o := &Options{}
	cmd := a.Command(command.Verb{
		Use: "profile", Short: "Measure how fast a worker is: TTFT by prompt, ITL by context and load", Group: command.GroupLook, Changes: true, Late: true,
		Long: `One worker of the cluster is measured, or any server that is compatible with OpenAI's API (--url):
how long prompts take by their length, one at a time, and how long the tokens of answers take by
context and by how many sequences decode together. The profile has both as tables, the worker's
limits, and the costs of a step that fit the tables, for dynctl simulate --profile.

The ends of the grid come first, so that what --budget cuts off is the fineness. Every point is in
FILE.points as soon as it is measured: the same command goes on with what is missing, and --again
begins anew. Prompts are random, and computed by the worker itself. Others must not use the worker
meanwhile. The limits of a server at --url are flags; it counts the tokens. Its key is --api-key,
$OPENAI_API_KEY or $DYNAMOD_FRONTEND_API_KEY.

With --teach the planner goes by the profile as long as the workers of the model do not show
themselves how fast they are. Servers of other engines never do.`,
		Examples: []string{
			"dynctl profile --save worker.json --svg worker.svg",
			"dynctl profile --url http://10.0.0.5:8000 --kv-tokens 400000 --max-num-seqs 256 --teach qwen3-32b",
			"dynctl profile --save p.json && dynctl simulate --profile p.json --decode 2 --rate 3",
		},
		Args: cobra.NoArgs,
		See:  []string{"dynctl get profile", "dynctl simulate", "dynctl bench"},
		Options: func(s *session.Session, _ []string) command.Runner {
			o.Session = s
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	command.Duration(fs, &o.Budget, "budget", 3*time.Minute, "end after this time, with a coarser grid")
	fs.StringVar(&o.Save, "save", "", "write the profile into this file, and its points beside it")
	fs.BoolVar(&o.Again, "again", false, "measure again what the file has")
	fs.StringVar(&o.SVG, "svg", "", "draw the points into this file")
	fs.StringVar(&o.Table, "npz", "", "write tables as NVIDIA Dynamo's profiler does into this folder")
	fs.StringVar(&o.Teach, "teach", "", "have the planner take workers of this model to be as fast")
	fs.StringVar(&o.Forget, "forget", "", "measure nothing: have the planner forget that of this model")
	command.Progress(fs, &o.Progress)
	fs.StringVar(&o.Worker, "worker", "", "the worker (default: the first that decodes)")
	fs.StringVar(&o.URL, "url", "", "a server at this address (default: the cluster's)")
	fs.StringVar(&o.Key, "api-key", "", "key of the server")
	fs.StringVar(&o.Model, "model", "", "name of the model (default: the only one)")
	command.Choice(fs, &o.API, "api", "", "chat", "endpoint", []string{"chat", "completions"})
	fs.BoolVar(&o.NoIgnoreEOS, "no-ignore-eos", false, "do not send ignore_eos and min_tokens: let the model end its answers")
	command.Duration(fs, &o.Timeout, "timeout", 5*time.Minute, "give up a request after this time")
	command.Count(fs, &o.KVTokens, "kv-tokens", 0, "tokens that the server's KV pool holds")
	command.Count(fs, &o.BlockSize, "block-size", 16, "tokens of a KV block of the server")
	command.Count(fs, &o.MaxSeqs, "max-num-seqs", 0, "most sequences that the server runs")
	command.Count(fs, &o.MaxBatchTokens, "max-num-batched-tokens", 0, "most tokens of a step (default: a whole prompt)")
	command.Count(fs, &o.MaxContext, "max-model-len", 0, "most tokens of prompt and answer (default: as the server tells)")
	command.Count(fs, &o.Devices, "devices", 1, "devices that the server computes on")
	command.Grouped(fs, "Measuring", "budget", "worker", "progress")
	command.Grouped(fs, "Results", "save", "again", "svg", "npz", "teach", "forget")
	command.Grouped(fs, "Server", "url", "api-key", "model", "api", "no-ignore-eos", "timeout")
	command.Grouped(fs, "Limits", "kv-tokens", "block-size", "max-num-seqs", "max-num-batched-tokens", "max-model-len", "devices")
	command.Rare(fs, "progress", "api-key", "api", "no-ignore-eos", "timeout", "block-size", "devices", "model", "max-num-batched-tokens", "max-model-len", "forget")
	for _, flag := range []string{"teach", "forget"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, complete.Models(a)) // fails for unknown flags only
	}
	_ = cmd.RegisterFlagCompletionFunc("model", complete.Models(a)) // fails for unknown flags only
	return cmd
}

// Run measures what is missing, and writes and prints the profile.
func (o *Options) Run(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.Forget != "" {
		return o.forget(ctx)
	}
	if err := o.pupil(ctx); err != nil {
		return err
	}
	t, err := o.target(ctx)
	if err != nil {
		return err
	}
	c := profiler.Config{
		Ask: t.ask, Model: t.subject.Model, Text: o.API == "completions", ExactLength: !o.NoIgnoreEOS, Timeout: o.Timeout, Budget: o.Budget,
		Limits: t.subject.Limits, Others: t.others, Seed: rand.Uint64(), Done: func(profiler.Measurement) error { return nil },
	}
	if o.Save != "" {
		j, have, err := profiler.OpenJournal(o.Session.Env.Path(o.journal()), t.subject, o.Again)
		if err != nil {
			f := &exit.Failure{Action: action, Err: err}
			if errors.Is(err, profiler.ErrOther) {
				f.Tries = []string{"--save another file", "--again   to measure this one, and forget the points"}
			}
			return f
		}
		o.Session.CloseFirst(j)
		c.Have, c.Done = have, j.Add
	}
	if c.Scale, err = o.calibrate(ctx, t, c); err != nil {
		return err
	}
	c.Plan = profiler.Plan(c.Limits, int(c.Scale.Overhead+0.5))
	if len(c.Plan) == 0 {
		return &exit.Failure{Action: action, Err: fmt.Errorf("a context of %d tokens and a pool of %d leave no room for prompts", c.Limits.MaxContext, c.Limits.KVTokens())}
	}
	live := o.watch(&c, t.subject)
	result, failed := profiler.Run(ctx, c)
	live.Close()
	if failed != nil && ctx.Err() == nil {
		failed = t.failure(failed)
	}
	return o.finish(ctx, t, result, failed)
}

// calibrate learns how the server counts tokens.
func (o *Options) calibrate(ctx context.Context, t *target, c profiler.Config) (workload.Scale, error) {
	scale, counts, err := bench.Calibrate(ctx, bench.Config{Ask: c.Ask, Model: c.Model, Text: c.Text, ExactLength: c.ExactLength, Seed: c.Seed, Timeout: c.Timeout}, min(c.Limits.MaxContext/4, c.Limits.KVTokens()/4))
	switch {
	case err == nil && !counts:
		return scale, &exit.Failure{Action: action, Err: profiler.ErrUncounted}
	case err == nil:
		return scale, nil
	case ctx.Err() != nil:
		return scale, context.Cause(ctx)
	}
	return scale, t.failure(err)
}

// failure makes an error of the server one that says what to do next.
func (t *target) failure(err error) error {
	f := &exit.Failure{Action: action, Err: err}
	var said *openai.Error
	switch {
	case errors.Is(err, profiler.ErrBusy):
		f.Tries = []string{"dynctl top   to see what it does", "--worker another one"}
	case errors.As(err, &said) && (said.Status == 400 || said.Status == 422):
		f.Tries = []string{"--no-ignore-eos   if the server does not know ignore_eos and min_tokens"}
	default:
		return frontend.Failure(t.session, action, t.client, err)
	}
	return f
}

// check finds mistakes in the flags before anything is dialed.
func (o *Options) check() error {
	given := o.Session.Given
	usage := func(flag, text string) error { return &exit.UsageError{Text: "--" + flag + ": " + text} }
	switch {
	case given("url") && o.URL == "":
		return usage("url", "no address given")
	case given("url") && o.Worker != "":
		return usage("worker", "has no use with --url")
	case o.Budget <= 0:
		return usage("budget", "must be greater than 0")
	case o.Timeout <= 0:
		return usage("timeout", "must be greater than 0")
	case o.Again && o.Save == "":
		return usage("again", "needs --save")
	case given("teach") && o.Teach == "", given("forget") && o.Forget == "":
		return &exit.UsageError{Text: "--teach and --forget take the name of a model"}
	case o.Forget != "" && (o.Teach != "" || o.Save != "" || o.URL != ""):
		return usage("forget", "measures nothing: leave out the other flags")
	}
	for _, f := range []string{"kv-tokens", "block-size", "max-num-seqs", "max-num-batched-tokens", "max-model-len", "devices"} {
		if given(f) && o.URL == "" {
			return usage(f, "is for a server at --url: workers of the cluster tell their limits")
		}
	}
	if o.URL == "" {
		return nil
	}
	for _, f := range []struct {
		name   string
		n, low int
	}{{"kv-tokens", o.KVTokens, 1}, {"max-num-seqs", o.MaxSeqs, 1}, {"block-size", o.BlockSize, 1}, {"devices", o.Devices, 1}, {"max-model-len", o.MaxContext, 0}, {"max-num-batched-tokens", o.MaxBatchTokens, 0}} {
		if f.n < f.low || f.n > maxLimit {
			if !given(f.name) {
				return usage(f.name, "is needed with --url, since servers do not tell it")
			}
			return usage(f.name, fmt.Sprintf("%d is not between %d and %s", f.n, max(f.low, 1), human.Commas(maxLimit)))
		}
	}
	if o.KVTokens < o.BlockSize {
		return usage("kv-tokens", "less than a block")
	}
	return nil
}

// maxLimit bounds limits of servers.
const maxLimit = 1 << 28
