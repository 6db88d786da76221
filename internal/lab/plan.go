package lab

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/lab/planner"
)

// planCommand compares autoscalers in virtual time.
func planCommand(stdout io.Writer) *cobra.Command {
	var seed uint64
	var only []string
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
` + strings.Join(names, ", ") + `.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			loads := planner.Loads()
			for _, name := range only {
				if !slices.Contains(names, name) {
					return usageError{fmt.Errorf("unknown load %q (known: %s)", name, strings.Join(names, ", "))}
				}
			}
			if len(only) > 0 {
				loads = slices.DeleteFunc(loads, func(l planner.Load) bool { return !slices.Contains(only, l.Name) })
			}
			return planner.Compare(stdout, loads, seed)
		},
	}
	cmd.Flags().Uint64Var(&seed, "seed", 1, "seed of the arrivals")
	cmd.Flags().StringSliceVar(&only, "load", nil, "loads to play; all without it")
	return cmd
}
