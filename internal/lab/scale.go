package lab

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/lab/bench"
)

// scaleFlags are the flags of dynlab scale.
type scaleFlags struct {
	quick  bool
	output string
	write  string
	points map[string]*[]int // by axis
	scale  bench.ScaleOptions
}

// errPoints is returned after a report with points that failed.
var errPoints = errors.New("points failed, see the report")

// scaleCommand measures what the control plane costs for fleets of several sizes.
func scaleCommand(stdout, stderr io.Writer) *cobra.Command {
	f := scaleFlags{points: map[string]*[]int{}}
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "measure what the control plane costs for 2 to 1,000 workers",
		Long: `scale starts fleets of mock workers in several processes, with embedded etcd and NATS,
and measures each: the time until all workers serve, what the fleet uses while it is
idle, and what a request, a scrape of /metrics, a change and an order cost. It does so
for several numbers of workers, of frontends and of nodes; one of them changes, the
others stay. For each figure it prints the law that fits, the term that dominates at
the largest fleet, and what the law says about 10,000 workers, which is extrapolated.

A full run takes about 25 minutes, --quick about 3. Judge times by a quiet machine;
processor times, bytes and counts hold on a busy one too. A point that fails is in the
report, and the exit code is then 1. Ctrl-c ends the run without a report.`,
		Example: `  dynlab scale --quick
  dynlab scale --axes workers --workers 128,512,1000 --idle 20s
  dynlab scale --write docs/scale
  dynlab scale -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.scale.Points = map[string][]int{}
			for axis, points := range f.points {
				if cmd.Flags().Changed(axis) && len(*points) == 0 {
					return usageError{fmt.Errorf("--%s: no points; choose axes with --axes", axis)}
				}
				f.scale.Points[axis] = *points
			}
			return f.run(scaleLine(cmd), stdout, stderr)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.quick, "quick", false, "smaller fleets, measured for a shorter time")
	flags.StringVarP(&f.output, "output", "o", "markdown", "form of the report: markdown or json")
	flags.StringVar(&f.write, "write", "", "write the report and its plots into this folder instead of standard output")
	flags.StringSliceVar(&f.scale.Axes, "axes", nil, "what to change: "+strings.Join(bench.ScaleAxes(), ", ")+"; all by default")
	for _, axis := range bench.ScaleAxes() {
		f.points[axis] = flags.IntSlice(axis, nil, "numbers of "+axis+" to measure")
	}
	flags.IntVar(&f.scale.Workers, "fixed-workers", 0, "number of workers while frontends or nodes change (default 128)")
	flags.IntVar(&f.scale.Processes, "processes", 0, "processes that share the nodes, at most (default 4)")
	flags.IntVar(&f.scale.KVBlocks, "kv-blocks", 0, "KV blocks of each worker (default 64)")
	flags.DurationVar(&f.scale.Idle, "idle", 0, "how long to measure an idle fleet (default 1m: workers write their status once a minute)")
	flags.DurationVar(&f.scale.Timeout, "timeout", 0, "limit of each point (default 5m)")
	flags.IntVar(&f.scale.Rounds, "rounds", 0, "how often to measure each point (default 1)")
	return cmd
}

// scaleLine returns the line that gives the same report again.
func scaleLine(cmd *cobra.Command) string {
	line := []string{"dynlab", "scale"}
	for _, name := range []string{"quick", "axes", "workers", "frontends", "nodes", "fixed-workers", "processes", "kv-blocks", "idle", "timeout", "rounds", "output", "write"} {
		switch f := cmd.Flags().Lookup(name); {
		case !f.Changed:
		case f.Value.Type() == "bool":
			line = append(line, "--"+name+"="+f.Value.String())
		default:
			line = append(line, "--"+name, strings.Trim(f.Value.String(), "[]"))
		}
	}
	return quoted(line)
}

func (f scaleFlags) run(command string, stdout, stderr io.Writer) error {
	if f.output != "markdown" && f.output != "json" {
		return usageError{fmt.Errorf("--output: %q is not markdown or json", f.output)}
	}
	o := bench.Options{Sections: []string{bench.SectionScale}, Quick: f.quick, Scale: f.scale, Command: command}
	if f.write != "" {
		o.Plots = "." // beside the report
	}
	report, err := measured(o, stderr)
	if err != nil {
		return err
	}
	if err := f.show(report, stdout); err != nil {
		return err
	}
	if slices.ContainsFunc(report.Sections, func(s bench.Section) bool { return len(s.Failures) > 0 }) {
		return errPoints
	}
	return nil
}

// show prints the report, or writes it and its plots into the folder.
func (f scaleFlags) show(report *bench.Report, stdout io.Writer) error {
	text, name := report.Markdown(), "report.md"
	if f.output == "json" {
		var err error
		if text, err = report.JSON(); err != nil {
			return err
		}
		name = "report.json"
	}
	if f.write == "" {
		_, err := stdout.Write(text)
		return err
	}
	if err := writePlots(report, f.write); err != nil {
		return err
	}
	return replaceFile(filepath.Join(f.write, name), text)
}
