package command

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

// DurationText is a duration as it is written on a command line: 1m30s.
func DurationText(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if t, ok := strings.CutSuffix(s, zero); ok {
			s = t + zero[:1]
		}
	}
	return s
}

// durationValue is a duration with a unit; a bare number is refused, 0 is not.
type durationValue struct{ d *time.Duration }

func (f durationValue) Set(text string) (err error) {
	*f.d, err = config.ParseDuration(text)
	return err
}

func (f durationValue) String() string {
	if f.d == nil {
		return DurationText(0)
	}
	return DurationText(*f.d)
}

func (durationValue) Type() string { return "duration" }

// Duration adds a flag for a duration with a unit.
func Duration(fs *pflag.FlagSet, d *time.Duration, name string, value time.Duration, usage string) {
	*d = value
	fs.Var(durationValue{d}, name, usage)
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

// Choice adds a flag for one of a few words.
func Choice(fs *pflag.FlagSet, p *string, name, short, value, usage string, choices []string) {
	*p = value
	fs.VarP(choiceFlag{p, choices}, name, short, fmt.Sprintf("%s (%s)", usage, strings.Join(choices, ", ")))
}

// Progress adds the flag that says how progress is shown.
func Progress(fs *pflag.FlagSet, p *string) {
	Choice(fs, p, "progress", "", "auto", "how progress is shown", progress.Modes())
}

// Waiting says how long a command waits for what it has ordered, and how it shows that.
// Options embed it.
type Waiting struct {
	Timeout  time.Duration
	NoWait   bool   // return as soon as the order is given
	Progress string // one of progress.Modes
}

// AddFlags adds the flags. What they wait for is in howLong; ordered says when --no-wait
// returns, as "the order is given".
func (w *Waiting) AddFlags(fs *pflag.FlagSet, timeout time.Duration, howLong, ordered string) {
	Duration(fs, &w.Timeout, "timeout", timeout, howLong)
	fs.BoolVar(&w.NoWait, "no-wait", false, "return when "+ordered+", with exit code 8")
	Progress(fs, &w.Progress)
	Grouped(fs, "Waiting", "timeout", "no-wait", "progress")
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

// Count adds a flag for a whole number that is not negative.
func Count(fs *pflag.FlagSet, n *int, name string, value int, usage string) {
	*n = value
	fs.Var(countFlag{n}, name, usage)
}

// settingAnnotation marks flags that were made from the table of settings.
const settingAnnotation = "dynctl_setting"

// IsSetting reports whether a flag was made from the table of settings.
func IsSetting(fl *pflag.Flag) bool { return len(fl.Annotations[settingAnnotation]) > 0 }

// AddSettings adds the flags of a command's settings.
func AddSettings(fs *pflag.FlagSet, command string) {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.DynctlTable().AddFlags(own, command)
	own.VisitAll(func(fl *pflag.Flag) {
		annotate(fl, settingAnnotation, "true")
		fs.AddFlag(fl)
	})
}

// Grouped puts flags of a verb under a heading of its help.
func Grouped(fs *pflag.FlagSet, group string, names ...string) {
	for _, n := range names {
		annotate(fs.Lookup(n), config.GroupAnnotation, group)
	}
}

// RareAnnotation marks flags and commands that only --help=all has.
const RareAnnotation = "dynctl_rare"

// Rare keeps flags out of the short help; --help=all has them.
func Rare(fs *pflag.FlagSet, names ...string) {
	for _, n := range names {
		annotate(fs.Lookup(n), RareAnnotation, "true")
	}
}

func annotate(fl *pflag.Flag, key, value string) {
	if fl.Annotations == nil {
		fl.Annotations = map[string][]string{}
	}
	fl.Annotations[key] = []string{value}
}

// Former has a command take flags under the names that they had in the release before. Each
// use is told on standard error.
func Former(cmd *cobra.Command, now map[string]string) {
	told := map[string]bool{}
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		current, ok := now[name]
		if !ok {
			return pflag.NormalizedName(name)
		}
		if !told[name] {
			told[name] = true
			cmd.PrintErrln("dynctl: note: " + config.Renamed("--"+name, "--"+current))
		}
		return pflag.NormalizedName(current)
	})
}
