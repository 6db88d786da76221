package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/lab/gpucheck"
	"github.com/dynctl/dynctl/internal/version"
)

const gpuCheck = "gpu-check"

// gpuCheckFlags are the flags of dynlab gpu-check.
type gpuCheckFlags struct {
	options gpucheck.Options
	list    bool
	shapes  bool
	report  bool
}

// gpuCheckCommand proves and measures the CUDA kernels.
func gpuCheckCommand(stdout, stderr io.Writer) *cobra.Command {
	var f gpuCheckFlags
	cmd := &cobra.Command{
		Use: gpuCheck, Short: "prove and measure the CUDA kernels on this machine's GPU",
		Long: `gpu-check runs every CUDA kernel on a GPU of this machine, compares what it computes with
the same in Go, and measures it in shapes of real models. It needs NVIDIA's driver and
nothing else. It takes about ten minutes at most; results are written one by one into a
folder, and running it again goes on where it was stopped. A kernel that hangs, or takes
the device with it, is noted and does not keep the others from running.

Phases, in their order:

` + phasesHelp() + `
The folder gets ` + gpucheck.ResultsFile + ` with a line for each case, ` + gpucheck.GoldensFile + `, and a summary,
` + gpucheck.SummaryFile + `. With --kernels, edited sources of the kernels are compiled by NVRTC,
which must be installed, in place of those of this program.`,
		Example: `  dynlab gpu-check --out results
  dynlab gpu-check --out results --phase smoke,compare
  dynlab gpu-check --out tuned --kernels src --define UNROLL=4 --case 'measure/gemv'
  dynlab gpu-check compare results tuned
  dynlab gpu-check --pretend --out rehearsal`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return runGPUCheck(f, stdout, stderr) },
	}
	o := &f.options
	cmd.Flags().StringVar(&o.Out, "out", "gpu-check", "folder of the results")
	cmd.Flags().StringSliceVar(&o.Phases, "phase", nil, "run these phases only")
	cmd.Flags().StringArrayVar(&o.Cases, "case", nil, "run cases of this name, or whose name begins with it up to a slash; * and ? stand for what is between slashes")
	cmd.Flags().BoolVar(&o.Again, "again", false, "run cases that have a result, too")
	cmd.Flags().DurationVar(&o.Limit, "time", 0, "end after this time; 0: when all is done")
	cmd.Flags().IntVar(&o.Device, "device", 0, "GPU, as the CUDA driver counts them")
	cmd.Flags().BoolVar(&o.Pretended, "pretend", false, "rehearse over a pretended driver, in small shapes: times mean nothing")
	cmd.Flags().StringVar(&o.Sources, "kernels", "", "folder of kernel sources (.cu, .h) to compile with NVRTC")
	cmd.Flags().StringSliceVar(&o.Macros, "define", nil, "macros for the kernels of --kernels, NAME or NAME=VALUE")
	cmd.Flags().StringVar(&o.NVRTC, "nvrtc", "", "library to compile with, instead of the system's libnvrtc")
	cmd.Flags().StringVar(&o.CublasLt, "cublaslt", "", "library that products are compared with, instead of the system's libcublasLt, if that is there")
	cmd.Flags().StringVar(&o.Models, "models", "", "folder for checkpoints with random weights, which stay there: up to 34 GB (default: in memory, else among temporary files)")
	cmd.Flags().BoolVar(&f.list, "list", false, "name the chosen cases and do nothing")
	cmd.Flags().BoolVar(&f.shapes, "shapes", false, "print what the phase measure computes, as lines of JSON, and do nothing")
	cmd.Flags().BoolVar(&f.report, "report", false, "write the summary of the results that there are, and run nothing")
	cmd.AddCommand(gpuCheckChildCommand(stdout), gpuCheckCompareCommand(stdout))
	return cmd
}

// gpuCheckCompareCommand compares two folders of results.
func gpuCheckCompareCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "compare A B", Short: "compare the results in two folders: of another GPU, driver, or variant of the kernels",
		Long: `compare says in what the results in folder B are others than those in folder A: outputs of the
kernels and answers of the built-in model, with what roundings may make of them, and figures
as ratios. It fails where outputs or answers are further apart than that.`,
		Example: `  dynlab gpu-check compare results tuned`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usageError{fmt.Errorf("compare takes two folders of results, not %d", len(args))}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := gpucheck.CompareRuns(args[0], args[1])
			if _, failed := stdout.Write(text); failed != nil {
				return failed
			}
			return err
		},
	}
}

// gpuCheckChildCommand runs cases, which come on standard input.
func gpuCheckChildCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: child, Hidden: true, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return gpucheck.Child(context.Background(), cmd.InOrStdin(), stdout)
		},
	}
}

func phasesHelp() string {
	var b strings.Builder
	for _, p := range gpucheck.Phases() {
		fmt.Fprintf(&b, "  %-8s %s\n", p.Name, p.About)
	}
	return b.String()
}

func runGPUCheck(f gpuCheckFlags, stdout, stderr io.Writer) error {
	o := f.options
	if len(o.Macros) > 0 && o.Sources == "" {
		return usageError{errors.New("--define: there are no sources that it could be for: name a folder with --kernels")}
	}
	if o.Limit < 0 {
		return usageError{fmt.Errorf("--time: %s is in the past", o.Limit)}
	}
	switch {
	case f.list:
		names, err := gpucheck.Names(o.Phases, o.Cases)
		if err != nil {
			return usageError{err}
		}
		_, err = io.WriteString(stdout, strings.Join(names, "\n")+"\n")
		return err
	case f.shapes:
		say := json.NewEncoder(stdout)
		for _, s := range gpucheck.Shapes() {
			if err := say.Encode(s); err != nil {
				return err
			}
		}
		return nil
	case f.report:
		return summarize(o.Out, stdout)
	}
	self, err := ownChild(gpuCheck)
	if err != nil {
		return err
	}
	o.Child, o.Build, o.Progress = self, "dynlab "+version.String(), stderr
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err = gpucheck.Run(ctx, o)
	switch {
	case errors.Is(err, gpucheck.ErrChoice):
		return usageError{err}
	case errors.Is(err, gpucheck.ErrUnusable):
		return err
	case errors.Is(err, context.Canceled):
		err = errors.New("interrupted; run it again to go on")
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no more time after %s; run it again to go on", o.Limit.Round(time.Second))
	}
	return errors.Join(err, summarize(o.Out, stdout))
}

// summarize writes the summary, beside the results and for whoever ran it, and what was
// tuned.
func summarize(dir string, stdout io.Writer) error {
	results, err := gpucheck.Results(dir)
	if err != nil {
		return err
	}
	text := gpucheck.Report(results)
	if err := replaceFile(dir+"/"+gpucheck.SummaryFile, text); err != nil {
		return err
	}
	if tiles := gpucheck.Tiles(results); len(tiles) > 0 {
		if err := replaceFile(dir+"/"+gpucheck.TilesFile, kernels.FormatTiles(tiles)); err != nil {
			return err
		}
	}
	_, err = stdout.Write(text)
	return err
}
