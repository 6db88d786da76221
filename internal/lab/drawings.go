package lab

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/lab/drawings"
)

// drawingsCommand writes pictures for the trainer of the built-in vision model.
func drawingsCommand(stdout io.Writer) *cobra.Command {
	var p drawings.Plan
	cmd := &cobra.Command{
		Use:   "drawings",
		Short: "write drawn pictures for the trainer of the built-in vision model",
		Long: `drawings writes, for each picture, a line of JSON and the bytes of the prepared view
(red, green, blue, row by row). The line has the picture's kind, its facts in the order of
the first line (-1 for what it says nothing of), its objects (class, color, place, and the
box as fractions of the sides), and its questions (topic, text, answer, key). The first line
of all names the facts and the pixels of a side.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return p.Run(stdout) },
	}
	f := cmd.Flags()
	f.StringVar(&p.Model, "model", "internal/model/builtin-vision", "folder with config.json and preprocessor_config.json")
	f.Uint64Var(&p.Seed, "seed", 1, "of the random generators")
	f.IntVar(&p.Count, "count", 0, "of pictures; 0 goes on until the reader leaves")
	f.BoolVar(&p.Held, "held", false, "ask in the ways that are held out of the training")
	f.StringToIntVar(&p.Kinds, "kinds", map[string]int{"code": 1, "shapes": 1, "chart": 1, "panel": 1}, "share of each kind, digits among them")
	f.StringVar(&p.Dir, "dir", "", "write PNG files to this folder instead of prepared views")
	return cmd
}
