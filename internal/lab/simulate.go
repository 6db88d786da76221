package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/bench/arrival"
	"github.com/dynctl/dynctl/internal/bench/workload"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/lab/simulation"
	"github.com/dynctl/dynctl/internal/mooncake"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/simulate"
	"github.com/dynctl/dynctl/internal/topofile"
)

// simulateFlags are the flags of dynlab simulate.
type simulateFlags struct {
	file, compare           string
	profile, prefillProfile string
	tables                  string
	prefill, decode         int

	trace    string
	speed    float64
	repeat   int
	rate     float64
	input    string
	output   string
	share    float64
	prefixes int
	turns    int
	duration time.Duration
	seed     uint64

	ttft, itl, interval time.Duration
	planner             bool
	budget              int
	records             bool
	json                bool
	svg                 string
}

// simulateCommand plays a load in virtual time.
func simulateCommand(stdout, stderr io.Writer) *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate --profile FILE {--trace FILE | --rate N}",
		Short: "play the load of a whole cluster in virtual time",
		Long: `simulate plays a load on a cluster that does not exist: engines, routing, conditional
disaggregation and queues are those of dynamod, and steps and transfers take the time
that a profile of the workers says. The same command gives the same result.

The cluster is what a topology file declares, with -f, or --prefill and --decode workers.
--compare plays another topology file with the same load, --planner the first cluster under the
planner (docs/planner.md). The load is a trace in the format of Mooncake, or requests at random
times with --rate.`,
		Example: `  dynlab simulate --profile h100.json --prefill 2 --decode 4 --trace conversation.jsonl
  dynlab simulate --profile h100.json -f now.yaml --compare next.yaml --rate 20 --isl 3000 --osl 150 --ttft 500ms --itl 50ms --planner
  dynlab simulate --profile h100.json --decode 8 --rate 5 --duration 1h --json --svg day.svg`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return f.run(ctx, stdout, stderr)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "file", "f", "", "topology file: numbers of workers, limits of engines, settings")
	flags.StringVar(&f.compare, "compare", "", "another topology file, played with the same load")
	flags.StringVar(&f.profile, "profile", "", "profile of the workers, as JSON (docs/simulation.md)")
	flags.StringVar(&f.prefillProfile, "prefill-profile", "", "profile of prefill workers, if it differs")
	flags.StringVar(&f.tables, "dynamo-profile", "", "folder of results of NVIDIA Dynamo's profiler: its tables, in place of the profile's costs of steps")
	flags.IntVar(&f.prefill, "prefill", 0, "number of prefill workers, without -f")
	flags.IntVar(&f.decode, "decode", 1, "number of decode workers, without -f")
	flags.StringVar(&f.trace, "trace", "", "trace of requests in the format of Mooncake")
	flags.Float64Var(&f.speed, "speed", 1, "play the trace so many times as fast")
	flags.IntVar(&f.repeat, "repeat", 1, "play the trace so many times, one after the other")
	flags.Float64Var(&f.rate, "rate", 0, "conversations per second, at random times")
	flags.StringVar(&f.input, "isl", "1024", "tokens of prompts: a number, or uniform:LOW:HIGH, normal:MEAN:DEVIATION, lognormal:MEAN:DEVIATION")
	flags.StringVar(&f.output, "osl", "128", "tokens of answers, as --isl")
	flags.Float64Var(&f.share, "prefix-share", 0, "part of each first prompt that is one of --prefixes common beginnings, 0 to 1")
	flags.IntVar(&f.prefixes, "prefixes", 1, "number of common beginnings")
	flags.IntVar(&f.turns, "turns", 1, "requests of each conversation, one after the other")
	flags.DurationVar(&f.duration, "duration", 10*time.Minute, "how long conversations begin, with --rate")
	flags.Uint64Var(&f.seed, "seed", 1, "seed of times and lengths")
	flags.DurationVar(&f.ttft, "ttft", 0, "target of the time to the first token")
	flags.DurationVar(&f.itl, "itl", 0, "target of the mean time between the tokens of an answer")
	flags.DurationVar(&f.interval, "interval", 0, "length of the intervals of the series (default 1m)")
	flags.BoolVar(&f.planner, "planner", false, "play the first cluster once more under the planner, which begins with its workers; needs --ttft and --itl")
	flags.IntVar(&f.budget, "budget", 0, "devices that the planner may use; 0: those of the first cluster")
	flags.BoolVar(&f.records, "records", false, "with --json, a record of each request")
	flags.BoolVar(&f.json, "json", false, "print the results as JSON, one after the other")
	flags.StringVar(&f.svg, "svg", "", "write charts of the series of the first cluster into this file")
	return cmd
}

func (f *simulateFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	load, describe, err := f.load()
	if err != nil {
		return err
	}
	configs, err := f.clusters(stderr)
	if err != nil {
		return err
	}
	if f.planner && (f.ttft <= 0 || f.itl <= 0 || f.budget < 0) {
		return usageError{errors.New("--planner needs --ttft and --itl, and a --budget that is not negative")}
	}
	var planned *simulation.Planned
	var all []simulation.Played
	if f.planner {
		first := configs[0]
		first.Config.TTFT, first.Config.ITL, first.Name = f.ttft, f.itl, "planner"
		if planned, err = simulation.Plan(&first.Config, f.budget); err != nil {
			return usageError{err}
		}
		configs = append(configs, first)
	}
	for _, p := range configs {
		p.Config.Load, p.Config.Seed, p.Config.Records = load(), f.seed, f.records && f.json
		p.Config.TTFT, p.Config.ITL, p.Config.Interval = f.ttft, f.itl, f.interval
		begin := time.Now()
		if p.Result, err = simulate.Run(ctx, p.Config); err != nil {
			return err
		}
		took := time.Since(begin).Seconds()
		_, _ = fmt.Fprintf(stderr, "%s: simulated %.0f s in %.1f s: %.0f requests/s, %.0f steps/s\n", p.Name, p.Result.SpanS, took, float64(p.Result.Requests)/took, float64(p.Result.Steps)/took) // only for people
		all = append(all, p)
	}
	if f.svg != "" {
		var b bytes.Buffer
		if err := simulation.Draw(&b, all[0].Name+" · "+describe, all[0].Result); err != nil {
			return err
		}
		if err := replaceFile(f.svg, b.Bytes()); err != nil {
			return err
		}
	}
	if !f.json {
		err := simulation.Show(stdout, describe, all...)
		if err == nil && planned != nil {
			err = planned.Show(stdout, all[len(all)-1].Result)
		}
		return err
	}
	for _, p := range all {
		if err := p.Result.Write(stdout); err != nil {
			return err
		}
	}
	return nil
}

// load returns what makes the load anew for each cluster, and describes it.
func (f *simulateFlags) load() (source func() simulate.Source, describe string, err error) {
	switch {
	case (f.trace == "") == (f.rate == 0):
		return nil, "", usageError{errors.New("name a --trace or a --rate")}
	case f.trace != "" && !(f.speed > 0 && f.speed <= 1e6) || f.repeat < 1 || f.repeat > 1e4:
		return nil, "", usageError{errors.New("--speed is not above 0 and at most 1e6, or --repeat not between 1 and 10000")}
	case f.trace != "":
		requests, err := readTrace(f.trace)
		if err != nil {
			return nil, "", err
		}
		describe = fmt.Sprintf("%s: %d requests", strings.TrimSuffix(filepath.Base(f.trace), ".jsonl"), len(requests)*f.repeat)
		return func() simulate.Source { return simulate.NewTrace(requests, f.speed, f.repeat) }, describe, nil
	}
	input, inputErr := workload.ParseLengths(f.input)
	output, outputErr := workload.ParseLengths(f.output)
	err = errors.Join(inputErr, outputErr, arrival.Check(f.rate))
	switch {
	case err != nil:
		return nil, "", usageError{err}
	case !(f.share >= 0 && f.share <= 1), f.prefixes < 1, f.turns < 1, f.turns > workload.MaxTurns, f.duration <= 0:
		return nil, "", usageError{errors.New("--prefix-share is not between 0 and 1, or --prefixes, --turns or --duration is not above 0")}
	}
	from := workload.Synthetic{Input: input, Output: output, Share: f.share, Prefixes: f.prefixes, Turns: f.turns, Seed: f.seed}
	curve := arrival.Constant(f.rate)
	describe = fmt.Sprintf("%s for %s, prompts of %s tokens, answers of %s", curve, f.duration, input, output)
	return func() simulate.Source {
		return &simulate.Open{From: from, Schedule: arrival.New(curve, true, f.seed), Until: f.duration}
	}, describe, nil
}

// clusters returns what to simulate.
func (f *simulateFlags) clusters(stderr io.Writer) ([]simulation.Played, error) {
	if f.profile == "" {
		return nil, usageError{errors.New("name a --profile of the workers")}
	}
	decode, err := readProfile(f.profile)
	if err != nil {
		return nil, err
	}
	if f.tables != "" {
		if decode, err = simulation.WithTables(decode, f.tables); err != nil {
			return nil, err
		}
	}
	var prefill *profile.Profile
	if f.prefillProfile != "" {
		if prefill, err = readProfile(f.prefillProfile); err != nil {
			return nil, err
		}
	}
	var files []topofile.File
	names := []string{"cluster"}
	if f.file == "" {
		files = []topofile.File{{Revision: cluster.Revision{Topology: cluster.Topology{Prefill: f.prefill, Decode: f.decode}}}}
	}
	for _, path := range []string{f.file, f.compare} {
		if path == "" {
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the topology: %w", err)
		}
		file, err := topofile.Parse(topofile.Source{Name: path}, content)
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			names = nil
		}
		files, names = append(files, file), append(names, filepath.Base(path))
	}
	var out []simulation.Played
	for i, file := range files {
		c, without, err := simulation.Declared(file, decode, prefill)
		if err != nil {
			return nil, err
		}
		if len(without) > 0 {
			_, _ = fmt.Fprintf(stderr, "%s: no effect on a simulation: %s\n", names[i], strings.Join(without, ", ")) // only for people
		}
		out = append(out, simulation.Played{Name: names[i], Config: c})
	}
	return out, nil
}

func readTrace(path string) ([]mooncake.Request, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the trace: %w", err)
	}
	defer file.Close()
	return mooncake.Read(file)
}

func readProfile(path string) (*profile.Profile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the profile: %w", err)
	}
	defer f.Close()
	p, err := profile.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}
