package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/lab/bench"
	"github.com/dynctl/dynctl/internal/version"
)

// benchChildCommand does the work of one, which comes as its argument.
func benchChildCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: child + " SPEC", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return bench.Child(ctx, args[0], cmd.InOrStdin(), stdout)
		},
	}
}

// benchFlags are the flags of dynlab bench.
type benchFlags struct {
	quick  bool
	output string
	write  string
	model  string
	text   string
	gpus   string
	cpu    bench.CPUOptions
}

// benchCommand measures this build on this machine.
func benchCommand(stdout, stderr io.Writer) *cobra.Command {
	names, about := bench.Names()
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench {all | " + strings.Join(names, " | ") + "}...",
		Short: "measure engine, request path, transfers and planes on this machine",
		Long: `bench measures this build on this machine and prints a report: speeds beside
what the hardware or a plain socket does in the same run, so that the ratios hold
on a busy machine too. It starts what it needs inside its own process, uses no
running cluster, and takes about ten minutes, with --quick about one.
Progress goes to standard error. Ctrl-c ends it without a report.

` + sectionHelp(names, about) + `
The random model of the engine section (1.2 GB, --quick 0.4 GB) is written to
` + "`.bench`" + ` in the state directory at first use and kept there. The models of the
cpu section (up to 4.5 GB at a time) are written there, too, and removed at the end;
the whole section takes about twenty minutes and 8 GiB of memory.`,
		Example: `  dynlab bench engine --quick
  dynlab bench path nixl -o json
  dynlab bench all --write docs/benchmarks.md
  dynlab bench disagg --gpus 0
  dynlab bench cpu --models qwen3-0.6b --cases decode,prefill-512 --operators
  dynlab bench accuracy --model /models/qwen3-0.6b --text book.txt`,
		ValidArgs: append([]string{"all"}, names...),
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.MatchAll(cobra.MinimumNArgs(1), cobra.OnlyValidArgs)(cmd, args); err != nil {
				return usageError{err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runBench(f, args, stdout, stderr)
		},
	}
	cmd.Flags().BoolVar(&f.quick, "quick", false, "smaller cases and fewer repetitions")
	cmd.Flags().StringVarP(&f.output, "output", "o", "markdown", "form of the report: markdown or json")
	cmd.Flags().StringVar(&f.write, "write", "", "write the report to this file instead of standard output")
	cmd.Flags().StringVar(&f.model, "model", "", "model directory to measure: in the engine section instead of the random model, in accuracy instead of the built-in one")
	cmd.Flags().StringVar(&f.text, "text", "", "file with text for the accuracy section instead of the built-in one")
	cmd.Flags().StringVar(&f.gpus, "gpus", "", "GPUs that the workers of the disagg section run on in place of processors: all, or their indexes such as 0,2")
	cmd.Flags().StringSliceVar(&f.cpu.Models, "models", nil, "models of the cpu section: "+strings.Join(bench.CPUModels(), ", ")+"; all by default")
	cmd.Flags().StringSliceVar(&f.cpu.Formats, "formats", nil, "formats of weights in the cpu section: "+strings.Join(bench.CPUFormats(), ", ")+"; all by default")
	cmd.Flags().StringSliceVar(&f.cpu.Cases, "cases", nil, "cases of the cpu section: "+strings.Join(bench.CPUCases(), ", ")+", or single ones like prefill-512; all by default")
	cmd.Flags().IntSliceVar(&f.cpu.Threads, "threads", nil, "numbers of cores in the cpu section; one and all by default")
	cmd.Flags().BoolVar(&f.cpu.Operators, "operators", false, "cpu section: add which part of a step each operator takes")
	cmd.AddCommand(benchChildCommand(stdout))
	return cmd
}

func sectionHelp(names []string, about map[string]string) string {
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "  %-8s %s\n", n, about[n])
	}
	return b.String()
}

func runBench(f benchFlags, args []string, stdout, stderr io.Writer) error {
	if f.output != "markdown" && f.output != "json" {
		return usageError{fmt.Errorf("--output: %q is not markdown or json", f.output)}
	}
	if f.model != "" {
		if _, err := os.Stat(f.model); err != nil {
			return usageError{fmt.Errorf("--model: %w", err)}
		}
	}
	if f.text != "" {
		if _, err := os.Stat(f.text); err != nil {
			return usageError{fmt.Errorf("--text: %w", err)}
		}
	}
	if f.gpus != "" {
		if chosen := chosenSections(args); !slices.Equal(chosen, []string{"disagg"}) {
			return usageError{errors.New("--gpus: only the section disagg runs on GPUs; dynlab gpu-check measures kernels and engine")}
		}
		if _, _, err := (config.GPU{Devices: f.gpus}).Groups(); err != nil {
			return usageError{fmt.Errorf("--gpus: %w", err)}
		}
	}
	report, err := measured(bench.Options{
		Sections: chosenSections(args), Quick: f.quick, Model: f.model, Text: f.text,
		CPU: f.cpu, GPUs: f.gpus, Plots: plotsOf(f.write), Command: f.command(args),
	}, stderr)
	if err != nil {
		return err
	}
	text := report.Markdown()
	if f.output == "json" {
		if text, err = report.JSON(); err != nil {
			return err
		}
	}
	if f.write == "" {
		_, err = stdout.Write(text)
		return err
	}
	if err := writePlots(report, filepath.Dir(f.write)); err != nil {
		return err
	}
	return replaceFile(f.write, text)
}

// measured runs benchmarks with the state directory of a dynamod, until a signal ends them.
func measured(o bench.Options, stderr io.Writer) (*bench.Report, error) {
	cfg, origins, err := config.LoadDynamod(config.Process(nil))
	if err != nil {
		return nil, usageError{err}
	}
	if err := origins.Locate(cfg.Validate()); err != nil {
		return nil, usageError{err}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	defer context.AfterFunc(ctx, stop)()
	if o.Child, err = ownChild("bench"); err != nil {
		return nil, err
	}
	o.StateDir, o.Version, o.Progress = cfg.StateDir, version.String(), stderr
	o.Log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	report, err := bench.Run(ctx, o)
	switch {
	case errors.Is(err, bench.ErrChoice):
		return nil, usageError{err}
	case errors.Is(err, context.Canceled):
		return nil, errors.New("interrupted, nothing was written")
	}
	return report, err
}

// chosenSections drops doubles; "all" stands for everything.
func chosenSections(args []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, a := range args {
		if a == "all" {
			return nil
		}
		if !seen[a] {
			seen[a] = true
			out = append(out, a)
		}
	}
	return out
}

// command is the line that gives the same report again.
func (f benchFlags) command(args []string) string {
	line := append([]string{"dynlab", "bench"}, args...)
	if f.quick {
		line = append(line, "--quick")
	}
	if f.model != "" {
		line = append(line, "--model", f.model)
	}
	if f.text != "" {
		line = append(line, "--text", f.text)
	}
	if f.gpus != "" {
		line = append(line, "--gpus", f.gpus)
	}
	for _, list := range []struct {
		flag   string
		values []string
	}{{"--models", f.cpu.Models}, {"--formats", f.cpu.Formats}, {"--cases", f.cpu.Cases}, {"--threads", texts(f.cpu.Threads)}} {
		if len(list.values) > 0 {
			line = append(line, list.flag, strings.Join(list.values, ","))
		}
	}
	if f.cpu.Operators {
		line = append(line, "--operators")
	}
	if f.output != "markdown" {
		line = append(line, "-o", f.output)
	}
	if f.write != "" {
		line = append(line, "--write", f.write)
	}
	return quoted(line)
}

// quoted joins words to a line for a shell.
func quoted(line []string) string {
	for i, w := range line {
		if strings.ContainsAny(w, " \t\n'\"`$&|;<>()*?[]#~\\") {
			line[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(line, " ")
}

func texts(numbers []int) (out []string) {
	for _, n := range numbers {
		out = append(out, strconv.Itoa(n))
	}
	return out
}
