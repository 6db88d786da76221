package explain

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

// PrefixOptions explain which workers hold the beginning of a prompt.
type PrefixOptions struct {
	Session *session.Session
	Text    string
	Model   string // empty: the only one
}

func prefixCommand(a *command.App) *cobra.Command {
	o := &PrefixOptions{}
	cmd := a.Command(command.Verb{
		Use: "prefix <text>", Short: "Say how much of a prompt each worker holds in its KV cache",
		Long: `Each frontend looks the text up in its prefix index, as a prompt of /v1/completions: no chat
template is put around it. A worker holds the leading full KV blocks of it that it has computed
or received, and not yet evicted. Tokens after the last full block are never shared.`,
		Examples: []string{
			`dynctl explain prefix "$(cat prompt.txt)"`,
			`dynctl explain prefix "You are a helpful assistant." --model llama-3-8b`,
			`dynctl explain prefix "$(cat prompt.txt)" -o json | jq '.[].workers[] | {worker, overlap}'`,
		},
		Args: command.One("text; put quotation marks around it"), Complete: complete.Nothing,
		See: []string{"dynctl get index", "dynctl explain route"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session, o.Text = s, args[0]
			return o
		},
	})
	cmd.Flags().StringVar(&o.Model, "model", "", "model whose tokenizer reads the text; needed if several are served")
	return cmd
}

const prefixAction = "cannot explain the prefix"

// Run asks the frontends and prints their answers.
func (o *PrefixOptions) Run(ctx context.Context) error {
	s := o.Session
	c, v, err := s.Look(ctx, prefixAction)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	found, err := c.KVIndexes(limited, v, protocol.KVIndexRequest{Text: o.Text, Model: o.Model})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, client.ErrNoIndex):
		return &exit.Failure{Action: prefixAction, Err: err, Code: exit.Unreachable, Tries: []string{"dynctl get nodes"}}
	case err != nil:
		return &exit.Failure{Action: prefixAction, Err: err}
	}
	a := output.Answer{Data: found, Table: func(wide bool) *output.Table { return prefixTable(s, found, wide) }}
	for _, x := range found {
		for _, w := range x.Workers {
			if w.Overlap > 0 {
				a.Names = append(a.Names, w.Worker)
			}
		}
	}
	return s.Out.Answer(a)
}

// prefixTable has a row for each frontend and worker.
func prefixTable(s *session.Session, all []cluster.KVIndex, wide bool) *output.Table {
	titles := []string{"WORKER", "FRONTEND", ">BLOCKS", ">TOKENS", ">SHARE", "INDEX"}
	if wide {
		titles = append(titles, "INSTANCE", "OUT OF DATE")
	}
	t := output.NewTable(titles...)
	for _, x := range all {
		way := "events"
		if x.Approximate {
			way = "approximate"
		}
		for _, w := range x.Workers {
			tokens, share := w.Overlap*x.BlockSize, "-"
			if x.PromptTokens > 0 {
				share = fmt.Sprintf("%d%%", 100*tokens/x.PromptTokens)
			}
			row := []string{w.Worker, x.Frontend, fmt.Sprintf("%d/%d", w.Overlap, x.PromptBlocks), fmt.Sprintf("%d/%d", tokens, x.PromptTokens), share, way}
			if wide {
				row = append(row, w.InstanceID.String(), strconv.FormatBool(!w.OutOfDateSince.IsZero()))
			}
			t.Add(row...)
			if w.Overlap == 0 {
				t.Paint(2, s.Out.Palette().Dim)
			}
		}
	}
	return t
}
