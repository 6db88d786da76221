package get

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/mooncake"
)

// TraceOptions collect the load that frontends have served.
type TraceOptions struct {
	Session *session.Session
	Since   time.Duration
	Model   string
	Save    string
}

func getTraceCommand(a *command.App) *cobra.Command {
	o := &TraceOptions{}
	cmd := a.Command(command.Verb{
		Use: "trace", Short: "Print the load of the last hour as a trace, for dynctl simulate and dynctl bench",
		Long: `Each frontend remembers of the requests of the last hour when they came, how many tokens they
had and where their prompts begin alike, in blocks of 512 tokens. The trace has those of all
frontends by time, in the format of Mooncake: a JSON object per line, times in milliseconds. It
has no text, and blocks are numbered in the order in which they appear.

Requests that still run, and those that had no answer, are not in it. Much load takes more memory
than there is for it; then the trace begins later. frontend.record_load=false turns it off.`,
		Examples: []string{
			"dynctl get trace --save trace.jsonl",
			"dynctl get trace --since 10m > trace.jsonl",
			"dynctl get trace | jq -s 'map(.input_length) | add / length'",
		},
		See: []string{"dynctl simulate", "dynctl bench", "dynctl set"},
		Options: func(s *session.Session, _ []string) command.Runner {
			o.Session = s
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	command.Duration(fs, &o.Since, "since", 0, "only requests that came so long ago at most (default: all)")
	fs.StringVar(&o.Model, "model", "", "only requests to this model")
	fs.StringVar(&o.Save, "save", "", "write a file, and not to standard output")
	_ = cmd.RegisterFlagCompletionFunc("model", complete.Models(a)) // fails for unknown flags only
	return cmd
}

const traceAction = "cannot print the trace"

// Run prints the trace.
func (o *TraceOptions) Run(ctx context.Context) error {
	s := o.Session
	if s.Given("since") && (o.Since <= 0 || o.Since > cluster.LoadKept) {
		return &exit.UsageError{Text: fmt.Sprintf("--since: %s is not above 0 and at most %s", command.DurationText(o.Since), command.DurationText(cluster.LoadKept))}
	}
	c, v, err := s.Look(ctx, traceAction)
	if err != nil {
		return err
	}
	l, err := c.RecordedLoad(ctx, v, o.Since)
	if err != nil {
		return &exit.Failure{Action: traceAction, Err: err}
	}
	trace, unanswered := l.Trace(o.Model)
	if len(trace) == 0 {
		f := &exit.Failure{Action: traceAction, Err: errors.New("no frontend remembers a request that had an answer"), Tries: []string{"dynctl bench", "dynctl get trace, later"}}
		switch {
		case len(l.Off) > 0 && len(l.Frontends) == 0:
			f.Err, f.Tries = errors.New("frontend.record_load is false"), []string{"dynctl set frontend.record_load=true"}
		case o.Model != "" && len(l.Models()) > 0:
			f.Err, f.Tries = fmt.Errorf("no frontend remembers an answer of the model %q", o.Model), []string{"dynctl get trace --model " + l.Models()[0]}
		}
		return f
	}
	var b bytes.Buffer
	if err := mooncake.Write(&b, trace); err != nil {
		return err
	}
	if o.Save != "" {
		err = os.WriteFile(s.Env.Path(o.Save), b.Bytes(), 0o644)
	} else {
		_, err = s.Out.Streams.Data().Write(b.Bytes())
	}
	if err != nil {
		return &exit.Failure{Action: traceAction, Err: err}
	}
	o.tell(l, trace, unanswered)
	return nil
}

// tell says beside the trace what it has.
func (o *TraceOptions) tell(l client.Load, trace []mooncake.Request, unanswered int) {
	out := o.Session.Out
	out.Note("%s in %s, from %s", human.Plural(len(trace), "request"), trace[len(trace)-1].At.Round(time.Second), strings.Join(l.Frontends, ", "))
	if unanswered > 0 {
		out.Note("%s without an answer left out", human.Plural(unanswered, "request"))
	}
	if models := l.Models(); len(models) > 1 && o.Model == "" {
		out.Note("of several models: %s; --model chooses one", strings.Join(models, ", "))
	}
	if len(l.Off) > 0 {
		out.Warn("frontend.record_load is false at %s: what it served is not in the trace", strings.Join(l.Off, ", "))
	}
	if len(l.Silent) > 0 {
		out.Warn("no answer from the frontend of %s: what it served is not in the trace", strings.Join(l.Silent, ", "))
	}
}
