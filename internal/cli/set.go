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
	unset  []string
	dryRun bool
	role   setRole
}

func (f *factory) set() *cobra.Command {
	o := &setCommand{}
	cmd := f.command(verb{
		use: "set [<worker> role=<role> | <setting>[=<value>]...]", short: "Change settings and roles while the cluster runs, or show settings", group: groupWorkers,
		long: `Frontends and workers take up a change at once, without a restart; requests that are under
way finish as they began. A setting that is not set here is what each dynamod was
configured with. A name alone shows the setting and where its value comes from: the
cluster, or each node's own configuration. Without arguments all are listed.

With the name of a worker its role changes: it hands over what it has and joins again in the
other role, with its weights and KV pool; the numbers of prefill and decode workers follow.`,
		examples: []string{
			"dynctl set disagg.strategy",
			"dynctl set disagg.strategy=prefill-first disagg.max_local_prefill_tokens=256",
			"dynctl set worker-3 role=prefill",
		},
		args: func(*cobra.Command, []string) error { return nil }, complete: completeSettings,
		see: []string{"dynctl get config", "dynctl top"},
		run: o.run,
	})
	cmd.Annotations[impactAnnotation] = "changing" // but a list does not: see run
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "print what would change, and change nothing")
	o.role.flags(cmd.Flags())
	cmd.Flags().StringSliceVar(&o.unset, "unset", nil, "settings that shall be as each dynamod was configured again")
	return cmd
}

// runtimeSetting is one setting, as -o json prints it.
type runtimeSetting struct {
	Setting string `json:"setting"`
	Value   any    `json:"value"` // null if it is not set
	Default any    `json:"default"`
	Origin  string `json:"origin"` // of the value: "cluster" or "node", each dynamod's own configuration
	Help    string `json:"help"`
	Error   string `json:"error,omitempty"` // why the stored value is ignored

	text string // of the value
}

// Where the value of a run-time setting comes from.
const (
	originCluster = "cluster" // it was set for all nodes
	originNode    = "node"    // each dynamod's own configuration counts
)

// assignment is one change of the command line.
type assignment struct {
	key   config.Key
	value any // nil to unset
}

func (o *setCommand) run(ctx context.Context, inv *invocation, args []string) error {
	if o.role.asked(args) {
		return o.role.run(ctx, inv, args, o.dryRun)
	}
	if asked, ok := o.asked(args); ok {
		asked, err := knownSettings(asked)
		if err != nil {
			return err
		}
		return inv.show(ctx, settingKind(), asked, false)
	}
	changes, err := o.parse(inv, args)
	if err != nil {
		return err
	}
	if why := inv.readOnly(); why != "" && !o.dryRun {
		return &failure{action: "cannot run " + inv.cmd.CommandPath(), err: errors.New("it changes the cluster, and " + why)}
	}
	const action = "cannot change settings"
	c, err := inv.connect(ctx, action)
	if err != nil {
		return err
	}
	if o.dryRun {
		return o.plan(ctx, inv, c, changes)
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

// asked are the settings to show: a command line that names some, or nothing, and
// changes none.
func (o *setCommand) asked(args []string) (names []string, ok bool) {
	if len(o.unset) > 0 {
		return nil, false
	}
	for _, a := range args {
		if strings.Contains(a, "=") {
			return nil, false
		}
	}
	return args, true
}

// knownSettings refuses names of settings that there are not.
func knownSettings(names []string) ([]string, error) {
	var out []string
	for _, name := range names {
		key, err := config.RuntimeKey(name)
		if err != nil {
			return nil, &usageError{text: err.Error(), tries: []string{"dynctl set   to list them"}}
		}
		out = append(out, key.Name)
	}
	return out, nil
}

// plan says what would change.
func (o *setCommand) plan(ctx context.Context, inv *invocation, c *client.Cluster, changes []assignment) error {
	all, err := runtimeSettings(ctx, c)
	if err != nil {
		return &failure{action: "cannot list settings", err: err}
	}
	var text strings.Builder
	names := []string{}
	for _, a := range changes {
		now := all[slices.IndexFunc(all, func(s runtimeSetting) bool { return s.Setting == a.key.Name })]
		from, to := "not set", "not set"
		if now.Origin == originCluster {
			from = now.text
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
	return inv.answer(answer{data: map[string]any{"would_change": names}, names: names, text: text.String()})
}

// parse reads the whole command line before anything is changed.
func (o *setCommand) parse(inv *invocation, args []string) ([]assignment, error) {
	var out []assignment
	seen := map[string]bool{}
	add := func(name, text string, value func(config.Key) (any, error)) error {
		key, err := config.RuntimeKey(name)
		if err != nil {
			return &usageError{text: err.Error(), tries: []string{"dynctl set   to list them"}}
		}
		if seen[key.Name] {
			return &usageError{text: name + " is named twice"}
		}
		seen[key.Name] = true
		if former := key.FormerSpelling(name, text); former != "" {
			inv.note("%s", former)
		}
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
		if err := add(name, text, func(k config.Key) (any, error) { return k.ParseRuntime(text) }); err != nil {
			return nil, err
		}
	}
	for _, name := range o.unset {
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

// runtimeSettings are all settings with their values now.
func runtimeSettings(ctx context.Context, c *client.Cluster) ([]runtimeSetting, error) {
	stored, err := c.Settings(ctx)
	if err != nil {
		return nil, err
	}
	out := []runtimeSetting{}
	for _, k := range config.RuntimeKeys() {
		s := runtimeSetting{Setting: k.Name, Default: config.Value{Value: k.Default}.Plain(), Origin: originNode, Help: k.Help}
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
	s.Origin = originCluster
	s.Value, s.text = config.Value{Value: v}.Plain(), config.Value{Value: v}.Text()
}

// settingsTable shows settings with where their values come from.
func settingsTable(items []runtimeSetting, wide bool) *table {
	titles := []string{"SETTING", "VALUE", "DEFAULT", "ORIGIN"}
	if wide {
		titles = append(titles, "~WHAT IT DOES")
	}
	t := newTable(titles...)
	for _, s := range items {
		value := orDash(s.text)
		if s.Error != "" {
			value = "ignored: " + s.Error
		}
		row := []string{s.Setting, value, fmt.Sprint(s.Default), s.Origin}
		if wide {
			row = append(row, s.Help)
		}
		t.add(row...)
	}
	return t
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

// completeSettingNames completes names alone.
func completeSettingNames(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	for _, k := range config.RuntimeKeys() {
		if !slices.Contains(args, k.Name) {
			out = append(out, cobra.CompletionWithDesc(k.Name, k.Help))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
