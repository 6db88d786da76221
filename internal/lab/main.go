// Package lab is the command line of dynlab, the laboratory: commands that measure this
// build and check its CUDA kernels. dynamod and dynctl link nothing of it, see package deps.
//
// Start with [Main]. The work is done by the packages below:
//
//   - bench measures engine, request path, transfers, planes, and whole fleets (dynlab scale);
//   - route replays traces against the routing policies in virtual time;
//   - simulation plays loads of whole clusters in virtual time (dynlab simulate), and finds
//     topologies for them (dynlab size); how close it comes to a real cluster (dynlab accuracy);
//   - planner plays loads on a pretended cluster under autoscalers (dynlab plan);
//   - drawings draws what the built-in vision model is trained with;
//   - gpucheck runs, compares and measures the CUDA kernels on a GPU;
//   - cuda has what CUDA code is tested and measured with: a fake driver (fake), an emulator
//     of PTX, the kernels as Go functions (kerneltest), NVIDIA's compiler (nvrtc) and
//     cuBLASLt (lt), and the command that makes the PTX (compile);
//   - attack and mutate are programs of their own, for go run.
//
// Tests of product packages import the fakes; other code of the product never does.
package lab

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/version"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // a measurement or a check failed
	exitUsage  = 2 // wrong flags, arguments or configuration
)

// usageError is a mistake in flags or configuration.
type usageError struct{ error }

// child is the hidden command of the processes that benchmarks and checks start.
const child = "child"

// Main runs dynlab and returns its exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	cmd := command(stdout, stderr)
	cmd.SetArgs(args)
	err := cmd.Execute()
	if err == nil {
		return exitOK
	}
	_, _ = fmt.Fprintf(stderr, "dynlab: %v\n", err) // a failed write has no other place to be reported
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

func command(stdout, stderr io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dynlab",
		Short: "laboratory of dynamod: benchmarks, and checks of its CUDA kernels",
		Long: `dynlab measures this build of dynamod on this machine, and checks its CUDA kernels on
a GPU. It runs engines and nodes inside its own processes: no cluster needs to run, and
none is touched.`,
		Args:          noArgs,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(benchCommand(stdout, stderr), gpuCheckCommand(stdout, stderr), routeCommand(stdout), planCommand(stdout), scaleCommand(stdout, stderr), sizeCommand(stdout, stderr), drawingsCommand(stdout), simulateCommand(stdout, stderr), accuracyCommand(stdout))
	return cmd
}

// noArgs makes a stray argument a mistake in the command line.
func noArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return usageError{err}
	}
	return nil
}

// ownChild is the command line that starts this program as the child of a command.
func ownChild(command string) ([]string, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to start processes of it: %w", err)
	}
	return []string{path, command, child}, nil
}
