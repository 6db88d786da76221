package lab

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/lab/route"
)

// routeCommand compares routing policies in virtual time.
func routeCommand(stdout io.Writer) *cobra.Command {
	var p route.Plan
	var plot string
	cmd := &cobra.Command{
		Use:   "route [TRACE...]",
		Short: "compare routing policies by replaying traces in virtual time",
		Long: `route replays workloads against the router's policies in virtual time, with the
engine's scheduler for each worker, and prints how much of their prompts the workers
reuse, how evenly they work and how long requests wait. Each TRACE is a file in the format of Mooncake: one JSON object a line with
timestamp, input_length, output_length and hash_ids. The generated workloads are
` + strings.Join(route.Generated(), ", ") + `.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(p.Prefill) > 0 && cmd.Flags().Changed("frontends") {
				return usageError{fmt.Errorf("--frontends compares policies: leave out --prefill")}
			}
			if plot != "" && (len(p.Prefill) > 0 || len(p.Frontends) > 1 || len(p.Speeds) < 2) {
				return usageError{fmt.Errorf("--plot shows policies over speeds: name several with --speed, one number of --frontends, and no --prefill")}
			}
			for _, path := range args {
				f, err := os.Open(path)
				if err != nil {
					return fmt.Errorf("read the trace: %w", err)
				}
				requests, err := route.ReadMooncake(f)
				_ = f.Close() // it was only read
				if err != nil {
					return err
				}
				name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".jsonl"), "_trace")
				p.Workloads = append(p.Workloads, route.Workload{Name: name, Requests: requests})
			}
			for _, name := range p.Generate {
				w, err := route.Generate(name, p.Seed)
				if err != nil {
					return usageError{err}
				}
				p.Workloads = append(p.Workloads, w)
			}
			if len(p.Workloads) == 0 {
				return usageError{fmt.Errorf("no workload: name a trace or use --generate")}
			}
			if plot == "" {
				return p.Run(stdout)
			}
			var chart bytes.Buffer
			p.Plot = &chart
			if err := p.Run(stdout); err != nil {
				return err
			}
			return os.WriteFile(plot, chart.Bytes(), 0o644)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&p.Generate, "generate", nil, "workloads to generate")
	f.IntSliceVar(&p.Workers, "workers", []int{8}, "numbers of workers")
	f.IntSliceVar(&p.Prefill, "prefill", nil, "numbers of prefill workers among them: compare the rules of disagg.conditional in place of policies")
	f.IntSliceVar(&p.Frontends, "frontends", []int{1}, "numbers of frontends, which take the requests in turns")
	f.DurationSliceVar(&p.Syncs, "sync-delay", []time.Duration{2 * time.Millisecond}, "delays with which several frontends hear of each other's requests in flight; 0 for not at all")
	f.IntSliceVar(&p.Blocks, "blocks", []int{1000, 4000}, "blocks of 512 tokens in each worker's cache")
	f.Float64SliceVar(&p.Speeds, "speed", []float64{1}, "play the workload this many times as fast")
	f.StringSliceVar(&p.Policies, "policies", nil, "policies to compare; all if empty")
	f.BoolVar(&p.Tune, "tune", false, "try the settings of each opponent, and print those with the lowest TTFT p90 (or the highest knee)")
	f.BoolVar(&p.Knee, "knee", false, "look for the highest speed at which 90 % of first tokens come within 2 s")
	f.StringVar(&plot, "plot", "", "write charts of the TTFT p90 over the speeds into this file, as SVG")
	f.Uint64Var(&p.Seed, "seed", 1, "seed of generated workloads")
	return cmd
}
