package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/bench"
	"github.com/dynctl/dynctl/internal/cli/labflags"
	"github.com/dynctl/dynctl/internal/lab/simulation"
	"github.com/dynctl/dynctl/internal/topofile"
)

// accuracyFlags are the flags of dynlab accuracy.
type accuracyFlags struct {
	report, trace, profile, file string
	sharedDevices                int
	json                         bool
}

// accuracyCommand says how close a simulation comes to a real cluster.
func accuracyCommand(stdout io.Writer) *cobra.Command {
	var f accuracyFlags
	cmd := &cobra.Command{
		Use:   "accuracy --report FILE --trace FILE --profile FILE -f FILE",
		Short: "compare a load that was measured on a cluster with its simulation",
		Long: `accuracy simulates the load that a cluster has served and prints latencies beside those
that dynctl bench measured there: goals are errors of 5 % at p50 and of 15 % at p95. The trace is what
dynctl get trace has of that load. Requests before the load that was measured, such as those with
which dynctl bench counts tokens, are simulated and do not count.

scripts/accuracy.sh does all of it, on a cluster of its own.`,
		Example: `  dynctl bench --rate 2 --duration 5m --save run.json
  dynctl get trace --since 6m --save trace.jsonl && dynctl get profile --save p.json && dynctl get topology -o yaml > t.yaml
  dynlab accuracy --report run.json --trace trace.jsonl --profile p.json -f t.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return f.run(ctx, stdout)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.report, "report", "", "report that dynctl bench --save wrote, as JSON")
	flags.StringVar(&f.trace, "trace", "", "the same load as the frontends recorded it")
	flags.StringVar(&f.profile, "profile", "", "profile of the workers")
	flags.StringVarP(&f.file, "file", "f", "", "topology file of the cluster")
	labflags.SharedDevices(flags, &f.sharedDevices)
	flags.BoolVar(&f.json, "json", false, "print the figures as JSON")
	return cmd
}

func (f *accuracyFlags) run(ctx context.Context, stdout io.Writer) error {
	if f.report == "" || f.trace == "" || f.profile == "" || f.file == "" {
		return usageError{errors.New("name a --report, a --trace, a --profile and a topology, -f")}
	}
	file, err := os.Open(f.report)
	if err != nil {
		return fmt.Errorf("read the report: %w", err)
	}
	measured, err := bench.Read(file)
	_ = file.Close() // it was only read
	if err != nil {
		return fmt.Errorf("%s: %w", f.report, err)
	}
	requests, err := readTrace(f.trace)
	if err != nil {
		return err
	}
	p, err := readProfile(f.profile)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(f.file)
	if err != nil {
		return fmt.Errorf("read the topology: %w", err)
	}
	declared, err := topofile.Parse(topofile.Source{Name: f.file}, content)
	if err != nil {
		return err
	}
	c, _, err := simulation.Declared(declared, p, nil)
	if err != nil {
		return err
	}
	c.SharedDevices = f.sharedDevices
	simulated, err := simulation.Last(ctx, c, requests, measured.Succeeded)
	if err != nil {
		return err
	}
	all, err := simulation.Agree(measured, simulated)
	if err != nil {
		return err
	}
	if f.json {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		return e.Encode(all)
	}
	return simulation.ShowAgreement(stdout, all, measured, simulated)
}
