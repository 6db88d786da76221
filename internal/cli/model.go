package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/inspect"
)

// modelCommand is the noun "model".
func (f *factory) modelCommand() *cobra.Command {
	cmd := f.command(verb{
		use: "model <command>", short: "Look at models on this machine", group: groupOther, free: true,
		long: "A model is a directory with config.json and *.safetensors, or a GGUF file.",
		examples: []string{
			"dynctl model inspect ~/models/qwen3-0.6b",
			"dynctl model inspect qwen3-0.6b-q8_0.gguf",
			"dynctl model inspect . -o json",
		},
		see:  []string{"dynctl up"},
		args: cobra.ArbitraryArgs,
		run: func(_ context.Context, inv *invocation, args []string) error {
			if len(args) > 0 {
				return unknownCommand(inv.cmd, args[0])
			}
			return inv.cmd.Help()
		},
	})
	cmd.AddCommand(f.modelInspect())
	return cmd
}

func (f *factory) modelInspect() *cobra.Command {
	return f.command(verb{
		use: "inspect <path>", short: "Describe a model, and everything that keeps it from being served",
		long: `The path is a model directory, or a GGUF file. Headers and small files are read, weights are
not. Memory is told for workers of one node with room for a full context each: the weights
are shared, KV blocks are not. What the chat template can do is found by rendering it.

The exit code is 1 if the model cannot be served; each reason is printed.`,
		examples: []string{
			"dynctl model inspect ~/models/qwen3-0.6b",
			"dynctl model inspect qwen3-0.6b-q8_0.gguf",
			"dynctl model inspect ~/models/qwen3-0.6b -o json | jq .parameters.total",
		},
		see:  []string{"dynctl up"},
		args: onePath,
		run: func(ctx context.Context, inv *invocation, args []string) error {
			path := inv.path(args[0])
			r := inspect.Look(ctx, path)
			if err := inv.answer(answer{data: r, text: modelText(r, inv.palette()), names: []string{r.Path}}); err != nil {
				return err
			}
			if r.Servable {
				return nil
			}
			return &failure{
				action: "cannot serve " + args[0], err: errors.New(plural(len(r.Problems), "problem")), facts: cleaned(r.Problems),
				tries: []string{"dynctl model inspect " + shellQuote(args[0]) + " -o json   for all that is known of it"},
			}
		},
	})
}

// onePath wants exactly one argument.
func onePath(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("name one model: a directory or a GGUF file")
	}
	return nil
}
