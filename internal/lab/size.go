package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/labflags"
	"github.com/dynctl/dynctl/internal/lab/simulation"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/simulate"
	"github.com/dynctl/dynctl/internal/topofile"
)

// sizeFlags are the flags of dynlab size.
type sizeFlags struct {
	labflags.Size
	json bool
}

// sizeCommand searches topologies for a load.
func sizeCommand(stdout, stderr io.Writer) *cobra.Command {
	var f sizeFlags
	cmd := &cobra.Command{
		Use:   "size --profile FILE --trace FILE --ttft TIME --itl TIME",
		Short: "find topologies for a load, in virtual time",
		Long: `size simulates a trace on topologies of a growing number of workers and prints those of which
none with as few devices misses the targets less. Of these it chooses the one with the fewest devices
that misses no more than --percentile allows.

It does not simulate all topologies: with one worker more it goes on from the best split of the
workers before, moves workers between the roles while that misses less, and tries workers without roles and
lengths up to which decode workers compute prompts themselves. It ends where nothing is missed.

With several profiles, of workers of 1, 2, ... devices, it tries each pair of them for prefill and decode workers.`,
		Example: `  dynlab size --profile h100.json --trace conversation.jsonl --ttft 1s --itl 25ms --budget 12
  dynlab size --profile h100.json --trace conversation.jsonl --ttft 1s --itl 25ms --save topology.yaml
  dynlab size --profile h100.json -f topology.yaml --trace conversation.jsonl --speed 2 --ttft 1s --itl 25ms --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return f.run(ctx, stdout, stderr)
		},
	}
	f.Add(cmd.Flags())
	cmd.Flags().BoolVar(&f.json, "json", false, "print the topologies as JSON, with all figures of each")
	return cmd
}

func (f *sizeFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	switch {
	case len(f.Profiles) == 0 || f.Trace == "":
		return usageError{errors.New("name a --profile of the workers and a --trace")}
	case f.TTFT <= 0 || f.ITL <= 0:
		return usageError{errors.New("name the targets: --ttft and --itl")}
	case f.Percentile < 1 || f.Percentile > 100:
		return usageError{fmt.Errorf("--percentile: %d is not between 1 and 100", f.Percentile)}
	case f.Budget < 1 || f.Budget > simulation.MaxBudget:
		return usageError{fmt.Errorf("--budget: %d is not between 1 and %d", f.Budget, simulation.MaxBudget)}
	case !(f.Speed > 0 && f.Speed <= 1e6):
		return usageError{errors.New("--speed is not above 0 and at most 1e6")}
	}
	decode, prefill, err := f.profiles()
	if err != nil {
		return err
	}
	requests, err := readTrace(f.Trace)
	if err != nil {
		return err
	}
	if len(requests) == 0 {
		return errors.New("the trace has no requests")
	}
	var base topofile.File
	if f.File != "" {
		content, err := os.ReadFile(f.File)
		if err != nil {
			return fmt.Errorf("read the topology: %w", err)
		}
		if base, err = topofile.Parse(topofile.Source{Name: f.File}, content); err != nil {
			return err
		}
	}
	config, _, err := simulation.Declared(base, decode[0], prefill)
	if err != nil {
		return err
	}
	of := map[int]simulation.Profiles{}
	for _, p := range decode {
		c, _, err := simulation.Declared(base, p, nil)
		if err != nil {
			return err
		}
		of[p.Devices] = simulation.Profiles{Prefill: c.PrefillProfile, Decode: c.Profile}
	}
	if len(of) == 1 {
		of = nil // nothing to choose
	}
	config.TTFT, config.ITL = f.TTFT, f.ITL
	s := simulation.Search{
		Config: config, Profiles: of, Load: func() simulate.Source { return simulate.NewTrace(requests, f.Speed, 1) }, Budget: f.Budget, Allowed: 1 - float64(f.Percentile)/100,
		Tried: func(n int, t simulation.Found) {
			_, _ = fmt.Fprintf(stderr, "simulated %d: %s on %d of %d devices misses %.1f %%\n", n, t.Topology, t.Devices, f.Budget, 100*t.Missed) // only for people
		},
	}
	front, err := s.Front(ctx)
	if err != nil {
		return err
	}
	if len(front) == 0 {
		return fmt.Errorf("a worker takes %d devices, and the budget has %d", s.Devices(simulation.Topology{Decode: 1, DecodeTP: decode[0].Devices}), f.Budget)
	}
	chosen, holds := s.Choose(front)
	if f.Save != "" {
		text, err := chosen.File(base)
		if err != nil {
			return err
		}
		if err := replaceFile(f.Save, text); err != nil {
			return err
		}
	}
	if f.json {
		return writeSizes(stdout, front, chosen, holds)
	}
	if err := simulation.ShowFront(stdout, front, chosen); err != nil {
		return err
	}
	verdict := fmt.Sprintf("\n%s on %d devices is the least that keeps TTFT %s and ITL %s for %d %% of %d requests.\n", chosen.Topology, chosen.Devices, f.TTFT, f.ITL, f.Percentile, len(requests))
	if !holds {
		verdict = fmt.Sprintf("\nNo topology that was simulated keeps TTFT %s and ITL %s for %d %% of %d requests. %s misses least.\n", f.TTFT, f.ITL, f.Percentile, len(requests), chosen.Topology)
	}
	if f.Save != "" {
		verdict += fmt.Sprintf("It is written to %s: dynctl up -f %[1]s\n", filepath.Clean(f.Save))
	}
	_, err = io.WriteString(stdout, verdict)
	return err
}

// profiles reads the profiles of the workers, of which several are of different numbers of devices, and that of prefill
// workers, which is nil where they do not differ.
func (f *sizeFlags) profiles() (workers []*profile.Profile, prefill *profile.Profile, err error) {
	switch {
	case len(f.Profiles) > simulation.MaxProfiles:
		return nil, nil, usageError{fmt.Errorf("--profile: %d are more than %d", len(f.Profiles), simulation.MaxProfiles)}
	case len(f.Profiles) > 1 && f.PrefillProfile != "":
		return nil, nil, usageError{errors.New("--prefill-profile: several --profile are tried for both roles")}
	}
	from := map[int]string{}
	for _, path := range f.Profiles {
		p, err := readProfile(path)
		if err != nil {
			return nil, nil, err
		}
		if other, twice := from[p.Devices]; twice {
			return nil, nil, usageError{fmt.Errorf("--profile: %s and %s are both of workers of %d devices", other, path, p.Devices)}
		}
		from[p.Devices] = path
		workers = append(workers, p)
	}
	if f.PrefillProfile != "" {
		prefill, err = readProfile(f.PrefillProfile)
	}
	return workers, prefill, err
}

// size is a topology of a front as JSON.
type size struct {
	simulation.Found
	Result *simulate.Result `json:"result"`
}

func writeSizes(out io.Writer, front []simulation.Found, chosen simulation.Found, holds bool) error {
	var doc struct {
		Front  []size              `json:"front"`
		Chosen simulation.Topology `json:"chosen"`
		Holds  bool                `json:"holds"` // the target
	}
	for _, f := range front {
		doc.Front = append(doc.Front, size{f, f.Result})
	}
	doc.Chosen, doc.Holds = chosen.Topology, holds
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(doc)
}
