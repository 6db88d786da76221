package get

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
)

// ProfileOptions print what a cluster has learned of its workers.
type ProfileOptions struct {
	Session *session.Session
	Save    string
}

func getProfileCommand(a *command.App) *cobra.Command {
	o := &ProfileOptions{}
	cmd := a.Command(command.Verb{
		Use: "profile", Short: "Print how fast the workers are, as the cluster has learned it, for dynctl simulate",
		Long: `The node that leads finds the costs of a step from what workers compute: seconds of a step, of a
sequence that decodes, of its context, of a prompt's token and its context. The profile has these,
the limits of a worker, the speed of KV transfers, and the median times of starts and of changes
of role. fitted says how far predicted steps are from measured ones. One kind of worker is assumed.

Times of frontends are not measured and count as 0. The profile is a JSON file; docs/simulation.md
has its fields.`,
		Examples: []string{
			"dynctl get profile --save workers.json",
			"dynctl get profile | jq .step",
			"dynctl get profile > p.json && dynctl simulate --profile p.json --decode 2 --rate 3",
		},
		See: []string{"dynctl simulate", "dynctl get trace", "dynctl explain planner"},
		Options: func(s *session.Session, _ []string) command.Runner {
			o.Session = s
			return o
		},
	})
	cmd.Flags().StringVar(&o.Save, "save", "", "write a file, and not to standard output")
	return cmd
}

// Run prints the profile.
func (o *ProfileOptions) Run(ctx context.Context) error {
	const action = "cannot print the profile"
	s := o.Session
	c, _, err := s.Look(ctx, action)
	if err != nil {
		return err
	}
	l, err := c.LearnedProfile(ctx)
	if err != nil {
		f := &exit.Failure{Action: action, Err: err}
		if errors.Is(err, client.ErrNoProfile) {
			f.Tries = []string{"dynctl bench   for some load", "dynctl explain planner"}
		}
		return f
	}
	var b bytes.Buffer
	if err := l.Profile.Write(&b); err != nil {
		return err
	}
	if o.Save != "" {
		err = os.WriteFile(s.Env.Path(o.Save), b.Bytes(), 0o644)
	} else {
		_, err = s.Out.Streams.Data().Write(b.Bytes())
	}
	if err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	s.Out.Note("of %s, learned by %s, %s ago", l.Profile.Name, l.Node, human.Age(s.Out.Now().Sub(l.Time)))
	if len(l.Unknown) > 0 {
		s.Out.Note("nothing has shown %s: 0 in the profile", strings.Join(l.Unknown, ", "))
	}
	return nil
}
