package certs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/certs"
	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
)

// ShowOptions list certificates, or say what to do with one.
type ShowOptions struct {
	folder
	Name string // empty for all
}

func showCommand(a *command.App) *cobra.Command {
	o := &ShowOptions{}
	cmd := a.Command(command.Verb{
		Use: "show [name]", Short: "List the certificates that were made here, or say where one belongs",
		Long: "With a name, says what to copy where, and which settings to write.",
		Examples: []string{
			"dynctl certs show",
			"dynctl certs show gpu-2",
			"dynctl certs show -o json | jq -r '.[].ends'",
		},
		See: []string{"dynctl certs init", "dynctl certs issue"}, Args: atMostOneName,
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session, o.Name = s, strings.Join(args, "")
			return o
		},
	})
	o.flag(cmd.Flags())
	_ = cmd.MarkFlagDirname("dir") // fails for unknown flags only
	return cmd
}

func atMostOneName(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("give the name of one certificate, not %d", len(args))
	}
	return nil
}

// Run lists them.
func (o *ShowOptions) Run(context.Context) error {
	const action = "cannot show certificates"
	dir, err := o.open()
	if err != nil {
		return err
	}
	all, err := dir.List()
	if err != nil {
		return failure(action, err)
	}
	if o.Name != "" {
		i := slices.IndexFunc(all, func(c certs.Certificate) bool { return c.Name == o.Name })
		if i < 0 {
			return &exit.Failure{Action: action, Err: fmt.Errorf("there is no certificate %s in %s", o.Name, dir.Dir), Tries: []string{"dynctl certs show", "dynctl certs issue " + human.ShellQuote(o.Name)}}
		}
		return made{Dir: dir.Dir, Certificates: all[i : i+1]}.tell(o.Session, all[i], false)
	}
	t := output.NewTable("NAME", "KIND", "ENDS", "LEFT", "HOSTS", "FILE")
	names := []string{}
	for _, c := range all {
		t.Add(c.Name, c.Kind, c.Ends.Format(time.DateOnly), left(c, o.Session.Out.Now()), human.OrDash(strings.Join(c.Hosts, ",")), c.CertFile)
		names = append(names, c.Name)
	}
	return o.Session.Out.Answer(output.Answer{Data: all, Table: func(bool) *output.Table { return t }, Names: names})
}

// left says how long a certificate is valid.
func left(c certs.Certificate, now time.Time) string {
	switch {
	case !now.Before(c.Ends):
		return "ended"
	case !c.Valid:
		return "of another authority"
	}
	return human.Plural(int(c.Ends.Sub(now)/(24*time.Hour)), "day")
}

// made describes new certificates, as -o json prints it.
type made struct {
	Dir          string              `json:"dir"`
	Certificates []certs.Certificate `json:"certificates"`
	// Settings are what to write into configuration files and command lines.
	Settings map[string]string `json:"settings"`
}

// tell says what was made, and where one of them belongs. here means that it is for this
// machine, which uses the files where they are.
func (m made) tell(s *session.Session, c certs.Certificate, here bool) error {
	p := placeOf(m.Dir, c, here)
	m.Settings = p.settings()
	var text strings.Builder
	for _, c := range m.Certificates {
		fmt.Fprintf(&text, "%s, until %s", c.CertFile, c.Ends.Format(time.DateOnly))
		if len(c.Hosts) > 0 {
			fmt.Fprintf(&text, ", for %s", strings.Join(c.Hosts, ", "))
		}
		text.WriteString("\n")
	}
	p.write(&text)
	names := []string{}
	for _, c := range m.Certificates {
		names = append(names, c.CertFile, c.KeyFile)
	}
	if s.Out.Prose() && len(m.Certificates) > 3 {
		s.Out.Note("dynctl certs show NAME says the same for each of the other nodes")
	}
	return s.Out.Answer(output.Answer{Data: m, Text: text.String(), Names: names})
}
