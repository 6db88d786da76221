package declare

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
)

// notOfAChange are flags that say nothing of what is declared.
var notOfAChange = []string{"why", "yes", "timeout", "no-wait", "progress", "port", "deadline", "grace", "quiet", "verbose"}

// reasonLength bounds what is kept of a command line.
const reasonLength = 160

// Reason returns the reason of a change: why, as the user wrote it, else the command.
func Reason(s *session.Session, why string) string {
	if why = strings.TrimSpace(why); why == "" {
		words := []string{s.Command}
		s.Flags.Visit(func(fl *pflag.Flag) {
			switch {
			case command.IsSetting(fl), slices.Contains(notOfAChange, fl.Name):
			case fl.Value.Type() == "bool":
				words = append(words, "--"+fl.Name)
			case fl.Value.Type() == "stringArray":
				list, _ := s.Flags.GetStringArray(fl.Name) // it is one
				for _, v := range list {
					words = append(words, "--"+fl.Name, human.ShellQuote(v))
				}
			default:
				words = append(words, "--"+fl.Name, human.ShellQuote(fl.Value.String()))
			}
		})
		why = strings.Join(words, " ")
	}
	if runes := []rune(why); len(runes) > reasonLength {
		why = string(runes[:reasonLength-1]) + "…"
	}
	return why
}
