package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/config"
)

// durationFlag is a duration with a unit; a bare number is refused, 0 is not.
type durationFlag struct{ d *time.Duration }

func (f durationFlag) Set(text string) (err error) {
	*f.d, err = config.ParseDuration(text)
	return err
}

func (f durationFlag) String() string {
	if f.d == nil || *f.d == 0 {
		return "0s"
	}
	s := f.d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if t, ok := strings.CutSuffix(s, zero); ok {
			s = t + zero[:1]
		}
	}
	return s
}

func (durationFlag) Type() string { return "duration" }

func durationVar(fs *pflag.FlagSet, d *time.Duration, name string, value time.Duration, usage string) {
	*d = value
	fs.Var(durationFlag{d}, name, usage)
}

// choiceFlag is one of a few words.
type choiceFlag struct {
	value   *string
	choices []string
}

func (f choiceFlag) Set(text string) error {
	if !slices.Contains(f.choices, text) {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(f.choices, ", "))
	}
	*f.value = text
	return nil
}

func (f choiceFlag) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}

func (choiceFlag) Type() string { return "string" }

func choiceVar(fs *pflag.FlagSet, p *string, name, short, value, usage string, choices []string) {
	*p = value
	fs.VarP(choiceFlag{p, choices}, name, short, fmt.Sprintf("%s (%s)", usage, strings.Join(choices, ", ")))
}

func progressVar(fs *pflag.FlagSet, p *string) {
	choiceVar(fs, p, "progress", "", "auto", "how progress is shown", progress.Modes())
}

// countFlag is a whole number that is not negative.
type countFlag struct{ n *int }

func (f countFlag) Set(text string) error {
	var n int
	if _, err := fmt.Sscanf(text, "%d", &n); err != nil || fmt.Sprint(n) != text || n < 0 {
		return fmt.Errorf("%q is not a whole number of 0 or more", text)
	}
	*f.n = n
	return nil
}

func (f countFlag) String() string {
	if f.n == nil {
		return "0"
	}
	return fmt.Sprint(*f.n)
}

func (countFlag) Type() string { return "int" }

func countVar(fs *pflag.FlagSet, n *int, name string, value int, usage string) {
	*n = value
	fs.Var(countFlag{n}, name, usage)
}

// formerFlags has a command take flags under the names that they had in the release
// before. Each use is told on standard error.
func formerFlags(cmd *cobra.Command, now map[string]string) {
	told := map[string]bool{}
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		current, ok := now[name]
		if !ok {
			return pflag.NormalizedName(name)
		}
		if !told[name] {
			told[name] = true
			cmd.PrintErrf("dynctl: --%s is called --%s now; the old name goes with the next release\n", name, current)
		}
		return pflag.NormalizedName(current)
	})
}
