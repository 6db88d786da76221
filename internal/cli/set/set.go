package set

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/listing"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/settings"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/config"
)

// Options change run-time settings.
type Options struct {
	Session *session.Session
	Set     []string // setting=value
	Unset   []string // names of settings
	DryRun  bool
}

// Command makes dynctl set.
func Command(a *command.App) *cobra.Command {
	o, role := &Options{}, &RoleOptions{}
	cmd := a.Command(command.Verb{
		Use: "set [<worker> role=<role> | <setting>[=<value>]...]", Short: "Change settings and roles while the cluster runs, or show settings", Group: command.GroupWorkers, Changes: true, Late: true,
		Long: `Frontends and workers take up a change at once, without a restart; requests that are under
way finish as they began. A setting that is not set here is what each dynamod was
configured with. A name alone shows the setting and where its value comes from: the
cluster, or each node's own configuration. Without arguments all are listed.

With the name of a worker its role changes: it hands over what it has and joins again in the
other role, with its weights and KV pool; the numbers of prefill and decode workers follow.`,
		Examples: []string{
			"dynctl set disagg.strategy",
			"dynctl set disagg.strategy=prefill-first disagg.conditional=slo",
			"dynctl set worker-3 role=prefill",
		},
		Args: func(*cobra.Command, []string) error { return nil }, Complete: settings.Complete,
		See: []string{"dynctl get config", "dynctl top"},
		Options: func(s *session.Session, args []string) command.Runner {
			switch {
			case namesWorker(args):
				role.Session, role.Args, role.DryRun = s, args, o.DryRun
				return role
			case len(o.Unset) == 0 && !slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, "=") }):
				return &ShowOptions{listing.Options{Session: s, Kind: settings.Kind(), Names: args}}
			}
			o.Session, o.Set = s, args
			return o
		},
	})
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "print what would change, and change nothing")
	role.flags(cmd.Flags())
	cmd.Flags().StringSliceVar(&o.Unset, "unset", nil, "settings to return to what each dynamod was configured with")
	return cmd
}

// assignment is one change of the command line.
type assignment struct {
	key   config.Key
	value any // nil to unset
}

// ShowOptions print settings, which a command line names without values.
type ShowOptions struct{ listing.Options }

// Run prints them.
func (o *ShowOptions) Run(ctx context.Context) error {
	var names []string
	for _, name := range o.Names {
		key, err := config.RuntimeKey(name)
		if err != nil {
			return unknownSetting(err)
		}
		names = append(names, key.Name)
	}
	o.Names = names
	return o.Options.Run(ctx)
}

// unknownSetting is the error about a name that no setting has.
func unknownSetting(err error) error {
	return &exit.UsageError{Text: err.Error(), Tries: []string{"dynctl set   to list them"}}
}

// Run changes the settings.
func (o *Options) Run(ctx context.Context) error {
	changes, err := o.parse()
	if err != nil {
		return err
	}
	if !o.DryRun {
		if err := o.Session.Writable(); err != nil {
			return err
		}
	}
	const action = "cannot change settings"
	c, err := o.Session.Connect(ctx, action)
	if err != nil {
		return err
	}
	if o.DryRun {
		return o.plan(ctx, c, changes)
	}
	for _, a := range changes {
		if err := a.apply(ctx, c); err != nil {
			return &exit.Failure{Action: action, Err: err}
		}
	}
	all, err := settings.Now(ctx, c)
	if err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	var text strings.Builder
	changed := []settings.Setting{}
	names := []string{}
	for _, a := range changes {
		s := all[slices.IndexFunc(all, func(s settings.Setting) bool { return s.Setting == a.key.Name })]
		if a.value == nil {
			fmt.Fprintf(&text, "%s is as each dynamod was configured.\n", s.Setting)
		} else {
			fmt.Fprintf(&text, "%s is %s.\n", s.Setting, s.ValueText())
		}
		changed, names = append(changed, s), append(names, s.Setting)
	}
	return o.Session.Out.Answer(output.Answer{Data: changed, Names: names, Text: text.String()})
}

// plan says what would change.
func (o *Options) plan(ctx context.Context, c *client.Cluster, changes []assignment) error {
	all, err := settings.Now(ctx, c)
	if err != nil {
		return &exit.Failure{Action: "cannot list settings", Err: err}
	}
	var text strings.Builder
	names := []string{}
	for _, a := range changes {
		now := all[slices.IndexFunc(all, func(s settings.Setting) bool { return s.Setting == a.key.Name })]
		from, to := "not set", "not set"
		if now.Origin == settings.OriginCluster {
			from = now.ValueText()
		}
		if a.value != nil {
			to = config.Value{Value: a.value}.Text()
		}
		if from == to {
			fmt.Fprintf(&text, "would leave %s as it is: %s\n", a.key.Name, from)
			continue
		}
		fmt.Fprintf(&text, "would change %s from %s to %s\n", a.key.Name, from, to)
		names = append(names, a.key.Name)
	}
	return o.Session.Out.Answer(output.Answer{Data: map[string]any{"would_change": names}, Names: names, Text: text.String()})
}

// parse reads the whole command line before anything is changed.
func (o *Options) parse() ([]assignment, error) {
	var out []assignment
	seen := map[string]bool{}
	add := func(name, text string, value func(config.Key) (any, error)) error {
		key, err := config.RuntimeKey(name)
		if err != nil {
			return unknownSetting(err)
		}
		if seen[key.Name] {
			return &exit.UsageError{Text: name + " is named twice"}
		}
		seen[key.Name] = true
		if former := key.FormerSpelling(name, text); former != "" {
			o.Session.Out.Note("%s", former)
		}
		v, err := value(key)
		if err != nil {
			return &exit.UsageError{Text: fmt.Sprintf("%s: %v", name, err)}
		}
		out = append(out, assignment{key, v})
		return nil
	}
	for _, arg := range o.Set {
		name, text, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, &exit.UsageError{Text: fmt.Sprintf("%q is not <setting>=<value>", arg), Tries: []string{"dynctl set   to list the settings"}}
		}
		if err := add(name, text, func(k config.Key) (any, error) { return k.ParseRuntime(text) }); err != nil {
			return nil, err
		}
	}
	for _, name := range o.Unset {
		if err := add(name, "", func(config.Key) (any, error) { return nil, nil }); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (a assignment) apply(ctx context.Context, c *client.Cluster) error {
	if a.value == nil {
		return c.DeleteSetting(ctx, a.key.Name)
	}
	raw, err := a.key.EncodeRuntime(a.value)
	if err != nil {
		return err
	}
	return c.PutSetting(ctx, a.key.Name, raw)
}
