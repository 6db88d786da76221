package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/config"
)

// setCommand shows and changes run-time settings.
type setCommand struct {
	unset []string
}

func (f *factory) set() *cobra.Command {
	o := &setCommand{}
	cmd := f.command(verb{
		use: "set [<setting>=<value>...]", short: "Change settings while the cluster runs, or list them", group: groupWorkers,
		long: `Frontends and workers take up a change at once, without a restart; requests that are under
way finish as they began. A setting that is not set here is what each dynamod was
configured with. Without arguments the settings are listed.`,
		examples: []string{
			"dynctl set",
			"dynctl set disagg.strategy=router disagg.max_local_prefill_tokens=256",
			"dynctl set --unset disagg.strategy",
		},
		args: func(*cobra.Command, []string) error { return nil }, complete: completeSettings,
		see: []string{"dynctl config view", "dynctl top"},
		run: o.run,
	})
	cmd.Annotations[impactAnnotation] = "changing" // but a list does not: see run
	cmd.Flags().StringSliceVar(&o.unset, "unset", nil, "settings that shall be as each dynamod was configured again")
	return cmd
}

// runtimeSetting is one setting, as -o json prints it.
type runtimeSetting struct {
	Setting string `json:"setting"`
	Value   any    `json:"value"` // null if it is not set
	Default any    `json:"default"`
	Help    string `json:"help"`
	Error   string `json:"error,omitempty"` // why the stored value is ignored

	text string // of the value
}

// assignment is one change of the command line.
type assignment struct {
	key   config.Key
	value any // nil to unset
}

func (o *setCommand) run(ctx context.Context, inv *invocation, args []string) error {
	changes, err := o.parse(args)
	if err != nil {
		return err
	}
	if why := inv.readOnly(); len(changes) > 0 && why != "" {
		return &failure{action: "cannot run " + inv.cmd.CommandPath(), err: errors.New("it changes the cluster, and " + why)}
	}
	action := "cannot list settings"
	if len(changes) > 0 {
		action = "cannot change settings"
	}
	c, err := inv.connect(ctx, action)
	if err != nil {
		return err
	}
	for _, a := range changes {
		if err := a.apply(ctx, c); err != nil {
			return &failure{action: action, err: err}
		}
	}
	all, err := runtimeSettings(ctx, c)
	if err != nil {
		return &failure{action: action, err: err}
	}
	if len(changes) == 0 {
		return inv.answer(listing(all))
	}
	var text strings.Builder
	changed := []runtimeSetting{}
	names := []string{}
	for _, a := range changes {
		s := all[slices.IndexFunc(all, func(s runtimeSetting) bool { return s.Setting == a.key.Name })]
		if a.value == nil {
			fmt.Fprintf(&text, "%s is as each dynamod was configured.\n", s.Setting)
		} else {
			fmt.Fprintf(&text, "%s is %s.\n", s.Setting, s.text)
		}
		changed, names = append(changed, s), append(names, s.Setting)
	}
	return inv.answer(answer{data: changed, names: names, text: text.String()})
}

// parse reads the whole command line before anything is changed.
func (o *setCommand) parse(args []string) ([]assignment, error) {
	var out []assignment
	seen := map[string]bool{}
	add := func(name string, value func(config.Key) (any, error)) error {
		key, err := config.RuntimeKey(name)
		if err != nil {
			return &usageError{text: err.Error(), tries: []string{"dynctl set   to list them"}}
		}
		if seen[name] {
			return &usageError{text: name + " is named twice"}
		}
		seen[name] = true
		v, err := value(key)
		if err != nil {
			return &usageError{text: fmt.Sprintf("%s: %v", name, err)}
		}
		out = append(out, assignment{key, v})
		return nil
	}
	for _, arg := range args {
		name, text, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, &usageError{text: fmt.Sprintf("%q is not <setting>=<value>", arg), tries: []string{"dynctl set   to list the settings"}}
		}
		if err := add(name, func(k config.Key) (any, error) { return k.ParseRuntime(text) }); err != nil {
			return nil, err
		}
	}
	for _, name := range o.unset {
		if err := add(name, func(config.Key) (any, error) { return nil, nil }); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (a assignment) apply(ctx context.Context, c *client.Cluster) error {
	if a.value == nil {
		return c.UnsetKnob(ctx, a.key.Name)
	}
	raw, err := a.key.EncodeRuntime(a.value)
	if err != nil {
		return err
	}
	return c.SetKnob(ctx, a.key.Name, raw)
}

// runtimeSettings are all settings with their values now.
func runtimeSettings(ctx context.Context, c *client.Cluster) ([]runtimeSetting, error) {
	stored, err := c.Knobs(ctx)
	if err != nil {
		return nil, err
	}
	out := []runtimeSetting{}
	for _, k := range config.RuntimeKeys() {
		s := runtimeSetting{Setting: k.Name, Default: config.Value{Value: k.Default}.Plain(), Help: k.Help}
		if raw, ok := stored[k.Name]; ok {
			s.read(k, raw)
		}
		out = append(out, s)
	}
	return out, nil
}

// read takes in what is stored; nobody uses what cannot be read.
func (s *runtimeSetting) read(k config.Key, raw json.RawMessage) {
	v, err := k.DecodeRuntime(raw)
	if err != nil {
		s.Error = err.Error()
		return
	}
	s.Value, s.text = config.Value{Value: v}.Plain(), config.Value{Value: v}.Text()
}

// listing is the answer to a command without arguments.
func listing(all []runtimeSetting) answer {
	a := answer{data: all}
	for _, s := range all {
		a.names = append(a.names, s.Setting)
	}
	a.table = func(wide bool) *table {
		titles := []string{"SETTING", "VALUE", "DEFAULT"}
		if wide {
			titles = append(titles, "~WHAT IT DOES")
		}
		t := newTable(titles...)
		for _, s := range all {
			value := orDash(s.text)
			if s.Error != "" {
				value = "ignored: " + s.Error
			}
			row := []string{s.Setting, value, fmt.Sprint(s.Default)}
			if wide {
				row = append(row, s.Help)
			}
			t.add(row...)
		}
		return t
	}
	return a
}

// completeSettings completes names, and values where there are a few.
func completeSettings(_ *cobra.Command, _ []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	name, _, valued := strings.Cut(text, "=")
	for _, k := range config.RuntimeKeys() {
		if !valued {
			out = append(out, cobra.CompletionWithDesc(k.Name+"=", k.Help))
			continue
		}
		if k.Name == name {
			for _, c := range k.Choices {
				out = append(out, k.Name+"="+c)
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
