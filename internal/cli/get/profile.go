package get

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/profile"
)

// ProfileOptions print what a cluster has learned of its workers.
type ProfileOptions struct {
	Session *session.Session
	Save    string
	Base    string // file of a measured profile
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
has its fields.

With --base, the costs of a profile that dynctl profile measured are corrected by what workers
compute: each goes to what the cluster's load shows of it, but to no more than 4 times and no less
than a quarter of the measured one. Costs that this load does not show stay. The measured tables
are left out, since they would hide the corrected costs.`,
		Examples: []string{
			"dynctl get profile --save workers.json",
			"dynctl get profile --base measured.json --save refined.json",
			"dynctl get profile > p.json && dynctl simulate --profile p.json --decode 2 --rate 3",
		},
		See: []string{"dynctl profile", "dynctl simulate", "dynctl get trace", "dynctl explain planner"},
		Options: func(s *session.Session, _ []string) command.Runner {
			o.Session = s
			return o
		},
	})
	cmd.Flags().StringVar(&o.Save, "save", "", "write a file, and not to standard output")
	cmd.Flags().StringVar(&o.Base, "base", "", "correct this profile, which dynctl profile measured, by what the cluster has learned")
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
	var notes []string
	if o.Base != "" {
		if notes, err = o.refine(&l); err != nil {
			return &exit.Failure{Action: action, Err: err}
		}
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
	for _, n := range notes {
		s.Out.Note("%s", n)
	}
	if len(l.Unknown) > 0 {
		s.Out.Note("nothing has shown %s: 0 in the profile", strings.Join(l.Unknown, ", "))
	}
	return nil
}

// refine puts the measured costs of the base, corrected by what the cluster has learned, in the
// place of the learned ones, with what the base knows beside them. It returns what to tell.
func (o *ProfileOptions) refine(l *profile.Learned) (notes []string, err error) {
	file, err := os.Open(o.Session.Env.Path(o.Base))
	if err != nil {
		return nil, fmt.Errorf("--base: %w", err)
	}
	base, err := profile.Read(file)
	_ = file.Close() // it was only read
	switch {
	case err != nil:
		return nil, fmt.Errorf("--base %s: %w", o.Base, err)
	case base.Name != l.Profile.Name:
		return nil, fmt.Errorf("--base %s is of %q, and the cluster has learned of %q", o.Base, base.Name, l.Profile.Name)
	case l.Observed == nil:
		return nil, fmt.Errorf("%s does not tell the steps that it has learned from, as nodes of earlier releases", l.Node)
	}
	r, err := profile.Refine(base.Step, *l.Observed)
	if err != nil {
		return nil, fmt.Errorf("correct %s: %w", o.Base, err)
	}
	p := &l.Profile
	p.Step, p.Fitted = r.Costs, nil // fitted is of the learned costs
	for _, k := range []struct {
		name              string
		learned, measured *float64
	}{
		{"overheads.frontend_s", &p.Overheads.Frontend, &base.Overheads.Frontend}, {"overheads.delivery_s", &p.Overheads.Delivery, &base.Overheads.Delivery},
		{"overheads.startup_s", &p.Overheads.Startup, &base.Overheads.Startup}, {"overheads.flip_s", &p.Overheads.Flip, &base.Overheads.Flip},
	} {
		if *k.learned == 0 && *k.measured > 0 {
			*k.learned = *k.measured
			l.Unknown = slices.DeleteFunc(l.Unknown, func(name string) bool { return name == k.name })
		}
	}
	if p.KV == (profile.KV{}) && base.KV != p.KV {
		p.KV = base.KV
		l.Unknown = slices.DeleteFunc(l.Unknown, func(name string) bool { return name == "kv" })
	}
	notes = append(notes, fmt.Sprintf("of %d observed windows, the measured costs are off by %.1f %%, the corrected ones by %.1f %% (root mean square)", l.Observed.Samples, 100*r.Before, 100*r.After))
	if len(r.AtBound) > 0 {
		notes = append(notes, fmt.Sprintf("%s would go beyond %d times or a quarter of what was measured: measure again", strings.Join(r.AtBound, ", "), profile.RefineBound))
	}
	return notes, nil
}
