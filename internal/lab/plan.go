package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/lab/planner"
	"github.com/dynctl/dynctl/internal/lab/simulation"
	"github.com/dynctl/dynctl/internal/topofile"
)

// planCommand compares autoscalers in virtual time.
func planCommand(stdout io.Writer) *cobra.Command {
	var seed uint64
	var only []string
	var sim planSimulation
	var names []string
	for _, l := range planner.Loads() {
		names = append(names, l.Name)
	}
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "compare autoscalers on loads in virtual time",
		Long: `plan plays loads on a pretended cluster of at most 8 devices and prints for each
autoscaler how many requests missed TTFT or ITL and how many device-hours it took.
The first row of a load is an autoscaler that knows all requests to come. The loads are
` + strings.Join(names, ", ") + `.

With --profile, the cluster is that of dynlab simulate: engines, routing, disaggregation and
caches are those of dynamod. The first row is then the best topology that stays as it is.`,
		Example: `  dynlab plan
  dynlab plan --load "sine 5 to 45" --seed 3
  dynlab plan --profile h100.json --budget 12 --trace conversation.jsonl`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			loads := planner.Loads()
			for _, name := range only {
				if !slices.Contains(names, name) {
					return usageError{fmt.Errorf("unknown load %q (known: %s)", name, strings.Join(names, ", "))}
				}
			}
			if len(only) > 0 {
				loads = slices.DeleteFunc(loads, func(l planner.Load) bool { return !slices.Contains(only, l.Name) })
			}
			if sim.profile != "" {
				return sim.compare(ctx, stdout, loads, seed)
			}
			return planner.Compare(stdout, loads, seed)
		},
	}
	cmd.Flags().Uint64Var(&seed, "seed", 1, "seed of the arrivals")
	cmd.Flags().StringSliceVar(&only, "load", nil, "loads to play; all without it")
	cmd.Flags().StringVar(&sim.profile, "profile", "", "profile of the workers of a simulated cluster, as JSON (docs/simulation.md)")
	cmd.Flags().StringVar(&sim.trace, "trace", "", "with --profile, a trace in the format of Mooncake in place of the loads")
	cmd.Flags().IntVar(&sim.budget, "budget", 12, "with --profile, devices that there may be")
	cmd.Flags().DurationVar(&sim.ttft, "ttft", 500*time.Millisecond, "with --profile, target of the time to the first token")
	cmd.Flags().DurationVar(&sim.itl, "itl", 20*time.Millisecond, "with --profile, target of the mean time between the tokens of an answer")
	return cmd
}

// planSimulation is a comparison on the simulated cluster of a profile.
type planSimulation struct {
	profile, trace string
	budget         int
	ttft, itl      time.Duration
}

func (s *planSimulation) compare(ctx context.Context, stdout io.Writer, loads []planner.Load, seed uint64) error {
	p, err := readProfile(s.profile)
	if err != nil {
		return err
	}
	c, _, err := simulation.Declared(topofile.File{Revision: cluster.Revision{Topology: cluster.Topology{Prefill: 1, Decode: 1}}}, p, nil)
	if err != nil {
		return err
	}
	c.TTFT, c.ITL, c.Seed = s.ttft, s.itl, seed
	cfg := simulation.PlannerConfig(c, s.budget)
	if err := cfg.Validate(); err != nil {
		return usageError{err}
	}
	var all []simulation.Comparison
	if s.trace != "" {
		requests, err := readTrace(s.trace)
		if err != nil {
			return err
		}
		all = append(all, simulation.OfTrace(strings.TrimSuffix(filepath.Base(s.trace), ".jsonl"), requests))
	} else {
		for _, l := range loads {
			all = append(all, simulation.OfLoad(l, seed))
		}
	}
	if _, err := io.WriteString(stdout, simulation.Header()); err != nil {
		return err
	}
	for i := range all {
		all[i].Config, all[i].Planner = c, cfg
		if err := all[i].Compare(ctx, stdout); err != nil {
			return err
		}
	}
	return nil
}
