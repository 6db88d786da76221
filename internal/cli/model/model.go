package model

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/declare"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/inspect"
)

// InspectOptions describe a model on this machine.
type InspectOptions struct {
	Session *session.Session
	Path    string
}

// Command makes dynctl model.
func Command(a *command.App) *cobra.Command {
	return command.Group(command.Verb{
		Use: "model <command>", Short: "Look at models on this machine", Group: command.GroupOther,
		Long: `A model is a directory with config.json and *.safetensors, or a GGUF file. A mmproj*.gguf
beside that makes it read images.`,
		Examples: []string{
			"dynctl model inspect ~/models/qwen3-0.6b",
			"dynctl model inspect qwen3-0.6b-q8_0.gguf",
			"dynctl model inspect . -o json",
		},
		See: []string{"dynctl up"},
	}, inspectCommand(a))
}

func inspectCommand(a *command.App) *cobra.Command {
	return a.Command(command.Verb{
		Use: "inspect <path>", Short: "Describe a model, and everything that keeps it from being served",
		Long: `The path is a model directory, or a GGUF file. Headers and small files are read, weights are
not. Memory is told for workers of one node with room for a full context each: the weights
are shared, KV blocks are not. What the chat template can do is found by rendering it.

The exit code is 1 if the model cannot be served; each reason is printed.`,
		Examples: []string{
			"dynctl model inspect ~/models/qwen3-0.6b",
			"dynctl model inspect qwen3-0.6b-q8_0.gguf",
			"dynctl model inspect ~/models/qwen3-0.6b -o json | jq .parameters.total",
		},
		See:  []string{"dynctl up"},
		Args: onePath,
		Options: func(s *session.Session, args []string) command.Runner {
			return &InspectOptions{Session: s, Path: args[0]}
		},
	})
}

// Run prints what is known of the model. One that cannot be served is a failure.
func (o *InspectOptions) Run(ctx context.Context) error {
	s := o.Session
	path := s.Env.Path(o.Path)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return declare.NoModel("cannot inspect "+o.Path, err, path, s.Env.Dir, "dynctl model inspect")
	}
	r := inspect.Look(ctx, path)
	if err := s.Out.Answer(output.Answer{Data: r, Text: modelText(r, s.Out.Palette()), Names: []string{r.Path}}); err != nil {
		return err
	}
	if r.Servable {
		return nil
	}
	return &exit.Failure{
		Action: "cannot serve " + o.Path, Err: errors.New(human.Plural(len(r.Problems), "problem")), Facts: cleaned(r.Problems),
		Tries: []string{"dynctl model inspect " + human.ShellQuote(o.Path) + " -o json   for all details"},
	}
}

// onePath wants exactly one argument.
func onePath(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("name one model: a directory or a GGUF file")
	}
	return nil
}
