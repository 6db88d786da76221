package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/term"
)

// A watch goes on when something cannot be listed for a while: it says so once, keeps the
// last answer, and says when all is well again.
func TestWatchSurvivesWhatDoesNotAnswer(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	calls := 0
	things := kind[string]{
		what: "things",
		items: func(context.Context, scene) ([]string, error) {
			switch calls++; calls {
			case 2, 3:
				return nil, errors.New("nobody answers")
			case 5:
				cancel()
			}
			return []string{"a", "b"}, nil
		},
		name: func(s string) string { return s },
		table: func(_ scene, items []string, _ bool) *table {
			tb := newTable("THING")
			for _, i := range items {
				tb.add(i)
			}
			return tb
		},
	}
	var stdout, stderr bytes.Buffer
	f := newFactory(Env{Streams: term.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr}, Environ: w.env})
	root := f.root()
	root.AddCommand(f.command(verb{use: "things", run: func(ctx context.Context, inv *invocation, _ []string) error {
		return inv.show(ctx, things, nil, true)
	}}))
	root.SetArgs([]string{"things"})
	err := root.ExecuteContext(ctx)
	if codeOf(err) != exitInterrupted {
		t.Errorf("ended with %v", err)
	}
	if got := stdout.String(); got != "THING\na\nb\n" {
		t.Errorf("printed %q", got)
	}
	if got := stderr.String(); got != "dynctl: STALE: nobody answers\ndynctl: note: everything answers again\n" {
		t.Errorf("told %q", got)
	}
}
