package declare

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/topofile"
)

// ChangeLines prints changes: "~ decode.workers  4 → 6".
func ChangeLines(changes []topofile.Change) string {
	width := 0
	for _, ch := range changes {
		width = max(width, len(ch.Path))
	}
	var b strings.Builder
	for _, ch := range changes {
		switch {
		case ch.From == nil:
			fmt.Fprintf(&b, "+ %-*s  %s\n", width, ch.Path, fieldText(ch.To))
		case ch.To == nil:
			fmt.Fprintf(&b, "- %-*s  %s\n", width, ch.Path, fieldText(ch.From))
		default:
			fmt.Fprintf(&b, "~ %-*s  %s → %s\n", width, ch.Path, fieldText(ch.From), fieldText(ch.To))
		}
	}
	return b.String()
}

// fieldText is a value as it would stand in a file.
func fieldText(v any) string {
	if list, ok := v.([]string); ok {
		return "[" + strings.Join(list, ", ") + "]"
	}
	return fmt.Sprint(v)
}

// Effects says what a change of the topology does to workers.
func Effects(from, to cluster.Topology) []string {
	out := []string{}
	pools := from.PoolNames()
	for _, pool := range to.PoolNames() {
		if !slices.Contains(pools, pool) {
			pools = append(pools, pool)
		}
	}
	for _, pool := range pools {
		for _, effect := range effects(from.In(pool), to.In(pool)) {
			if pool != "" {
				effect = pool + ": " + effect
			}
			out = append(out, effect)
		}
	}
	if len(out) == 0 {
		out = append(out, "no worker restarts")
	}
	return out
}

// effects is Effects for one pool, nothing if there is none.
func effects(from, to cluster.Topology) (out []string) {
	for _, r := range cluster.Roles {
		before, after := from.Count(r), to.Count(r)
		oldModel, oldEngine := from.Specs(r)
		newModel, newEngine := to.Specs(r)
		if both := min(before, after); both > 0 && (oldModel != newModel || oldEngine != newEngine) {
			line := human.Plural(both, string(r)+" worker") + " restart"
			if both == 1 {
				line += "s"
			} else {
				line += ", one at a time"
			}
			out = append(out, line)
		}
		switch n := after - before; {
		case n == 1:
			out = append(out, human.Plural(n, string(r)+" worker")+" starts")
		case n > 0:
			out = append(out, human.Plural(n, string(r)+" worker")+" start")
		case n == -1:
			out = append(out, human.Plural(-n, string(r)+" worker")+" drains and leaves")
		case n < 0:
			out = append(out, human.Plural(-n, string(r)+" worker")+" drain and leave")
		}
	}
	return out
}

// ModelPhrase names the model of the main pool and where it comes from.
func ModelPhrase(t cluster.Topology) string {
	m := t.Model
	_, e := t.Specs(cluster.RoleDecode)
	text := m.Name + " (built-in)"
	switch {
	case m.Builtin() == "":
		text = m.Name + " from " + m.Path
	case t.OfServer():
		text = m.Name
	}
	if e.External() {
		text += " by " + e.Backend
	}
	if m.Quantize != "" {
		text += " as " + m.Quantize
	}
	return text
}

// Declared returns the current declaration of a cluster, and whether there ever was one.
func Declared(ctx context.Context, c *client.Cluster) (r cluster.Revision, ever bool, err error) {
	t, settings, err := c.Revision(ctx)
	if t != nil {
		r.Topology = *t
	}
	r.Settings = settings
	return r, t != nil, err
}

// CompleteFields completes the fields of a topology, and values where there are a few.
func CompleteFields(_ *cobra.Command, _ []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	name, _, valued := strings.Cut(text, "=")
	for _, fd := range topofile.Fields() {
		if !valued {
			out = append(out, cobra.CompletionWithDesc(fd.Path+"=", fd.Key.Help))
			continue
		}
		if fd.Path == name {
			for _, c := range fd.Key.Choices {
				out = append(out, name+"="+c)
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
