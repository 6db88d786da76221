package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/listing"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
)

// A watch goes on when something cannot be listed for a while: it says so once, keeps the
// last answer, and says when all is well again.
func TestWatchSurvivesWhatDoesNotAnswer(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	calls := 0
	things := listing.Kind[string]{
		What: "things",
		Items: func(context.Context, listing.Scene) ([]string, error) {
			switch calls++; calls {
			case 2, 3:
				return nil, errors.New("nobody answers")
			case 5:
				cancel()
			}
			return []string{"a", "b"}, nil
		},
		Name: func(s string) string { return s },
		Table: func(_ listing.Scene, items []string, _ bool) *output.Table {
			tb := output.NewTable("THING")
			for _, i := range items {
				tb.Add(i)
			}
			return tb
		},
	}
	var stdout, stderr bytes.Buffer
	a := command.New(session.Env{Streams: term.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr}, Environ: w.env})
	root := root(a)
	root.AddCommand(a.Command(command.Verb{Use: "things", Options: func(s *session.Session, _ []string) command.Runner {
		return &listing.Options{Session: s, Kind: things, Watch: true}
	}}))
	root.SetArgs([]string{"things"})
	err := root.ExecuteContext(ctx)
	if exit.CodeOf(err) != exit.Interrupted {
		t.Errorf("ended with %v", err)
	}
	if got := stdout.String(); got != "THING\na\nb\n" {
		t.Errorf("printed %q", got)
	}
	if got := stderr.String(); got != "dynctl: STALE: nobody answers\ndynctl: note: everything answers again\n" {
		t.Errorf("told %q", got)
	}
}
