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
	"github.com/dynctl/dynctl/internal/cli/labflags"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/lab/simulation"
	"github.com/dynctl/dynctl/internal/mooncake"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/simulate"
	"github.com/dynctl/dynctl/internal/topofile"
)

// simulateFlags are the flags of dynlab simulate.
type simulateFlags struct {
	labflags.Simulate
	json bool
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
	f.Add(cmd.Flags())
	cmd.Flags().BoolVar(&f.json, "json", false, "print the results as JSON, one after the other")
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
	if f.Planner && (f.TTFT <= 0 || f.ITL <= 0 || f.Budget < 0) {
		return usageError{errors.New("--planner needs --ttft and --itl, and a --budget that is not negative")}
	}
	var planned *simulation.Planned
	var all []simulation.Played
	if f.Planner {
		first := configs[0]
		first.Config.TTFT, first.Config.ITL, first.Name = f.TTFT, f.ITL, "planner"
		if planned, err = simulation.Plan(&first.Config, f.Budget); err != nil {
			return usageError{err}
		}
		configs = append(configs, first)
	}
	for _, p := range configs {
		p.Config.Load, p.Config.Seed, p.Config.Records = load(), f.Seed, f.Records && f.json
		p.Config.TTFT, p.Config.ITL, p.Config.Interval, p.Config.SharedDevices = f.TTFT, f.ITL, f.Interval, f.SharedDevices
		begin := time.Now()
		if p.Result, err = simulate.Run(ctx, p.Config); err != nil {
			return err
		}
		took := time.Since(begin).Seconds()
		_, _ = fmt.Fprintf(stderr, "%s: simulated %.0f s in %.1f s: %.0f requests/s, %.0f steps/s\n", p.Name, p.Result.SpanS, took, float64(p.Result.Requests)/took, float64(p.Result.Steps)/took) // only for people
		all = append(all, p)
	}
	if f.SVG != "" {
		var b bytes.Buffer
		if err := simulation.Draw(&b, all[0].Name+" · "+describe, all[0].Result); err != nil {
			return err
		}
		if err := replaceFile(f.SVG, b.Bytes()); err != nil {
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
	case (f.Trace == "") == (f.Rate == 0):
		return nil, "", usageError{errors.New("name a --trace or a --rate")}
	case f.Trace != "" && !(f.Speed > 0 && f.Speed <= 1e6) || f.Repeat < 1 || f.Repeat > 1e4:
		return nil, "", usageError{errors.New("--speed is not above 0 and at most 1e6, or --repeat not between 1 and 10000")}
	case f.Trace != "":
		requests, err := readTrace(f.Trace)
		if err != nil {
			return nil, "", err
		}
		describe = fmt.Sprintf("%s: %d requests", strings.TrimSuffix(filepath.Base(f.Trace), ".jsonl"), len(requests)*f.Repeat)
		return func() simulate.Source { return simulate.NewTrace(requests, f.Speed, f.Repeat) }, describe, nil
	}
	input, inputErr := workload.ParseLengths(f.Input)
	output, outputErr := workload.ParseLengths(f.Output)
	err = errors.Join(inputErr, outputErr, arrival.Check(f.Rate))
	switch {
	case err != nil:
		return nil, "", usageError{err}
	case !(f.Share >= 0 && f.Share <= 1), f.Prefixes < 1, f.Turns < 1, f.Turns > workload.MaxTurns, f.Duration <= 0:
		return nil, "", usageError{errors.New("--prefix-share is not between 0 and 1, or --prefixes, --turns or --duration is not above 0")}
	}
	from := workload.Synthetic{Input: input, Output: output, Share: f.Share, Prefixes: f.Prefixes, Turns: f.Turns, Seed: f.Seed}
	curve := arrival.Constant(f.Rate)
	describe = fmt.Sprintf("%s for %s, prompts of %s tokens, answers of %s", curve, f.Duration, input, output)
	return func() simulate.Source {
		return &simulate.Open{From: from, Schedule: arrival.New(curve, true, f.Seed), Until: f.Duration}
	}, describe, nil
}

// clusters returns what to simulate.
func (f *simulateFlags) clusters(stderr io.Writer) ([]simulation.Played, error) {
	if f.Profile == "" {
		return nil, usageError{errors.New("name a --profile of the workers")}
	}
	decode, err := readProfile(f.Profile)
	if err != nil {
		return nil, err
	}
	if f.Tables != "" {
		if decode, err = simulation.WithTables(decode, f.Tables); err != nil {
			return nil, err
		}
	}
	var prefill *profile.Profile
	if f.PrefillProfile != "" {
		if prefill, err = readProfile(f.PrefillProfile); err != nil {
			return nil, err
		}
	}
	var files []topofile.File
	names := []string{"cluster"}
	if f.File == "" {
		files = []topofile.File{{Revision: cluster.Revision{Topology: cluster.Topology{Prefill: f.Prefill, Decode: f.Decode}}}}
	}
	for _, path := range []string{f.File, f.Compare} {
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
