package command

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/config"
)

// otherNames are names that other tools (docker, kubectl, ollama, systemctl) have for what a
// command does.
var otherNames = map[string][]string{
	"up":      {"run", "start", "serve", "launch", "create", "deploy", "apply", "pull", "install"},
	"down":    {"stop", "kill", "shutdown", "destroy"},
	"ps":      {"list", "ls", "status", "show"},
	"get":     {"describe", "status", "show", "list"},
	"explain": {"describe", "why"},
	"chat":    {"run", "ask", "generate", "prompt"},
	"model":   {"pull", "download", "models", "show"},
	"bench":   {"benchmark", "load", "perf", "stress"},
	"call":    {"curl", "grpcurl", "invoke", "request", "send"},
	"drain":   {"cordon", "delete", "remove", "rm", "evict", "kill", "stop"},
	"restart": {"reload", "rollout"},
	"scale":   {"resize", "autoscale"},
	"logs":    {"log"},
	"top":     {"watch", "dashboard", "ui", "tui", "monitor"},
	"doctor":  {"check", "diagnose", "health"},
	"set":     {"edit", "patch", "configure"},
	"join":    {"connect"},
}

// SuggestFor has the commands below root found by the names that other tools have for them.
func SuggestFor(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		cmd.SuggestFor = append(cmd.SuggestFor, otherNames[cmd.Name()]...)
	}
}

// FlagError makes a usage error of one about the flags of a command. A command that does
// nothing by itself was given another's name: its flags are not what is wrong.
func FlagError(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
		return HelpOrUnknown(cmd, args)
	}
	u := &exit.UsageError{Text: err.Error()}
	name, unknown := strings.CutPrefix(u.Text, "unknown flag: --")
	if !unknown {
		return u
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	if near := config.Nearest(name, known); near != "" {
		u.Text += "; did you mean --" + near + "?"
	}
	return u
}
