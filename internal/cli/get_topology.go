package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/topofile"
)

func (f *factory) getTopology() *cobra.Command {
	return f.getVerb(topologyKind(), "", verb{
		use: "topology", short: "Print what is declared: the model, and how many workers of each role",
		long: `YAML is a topology file, with the settings at run time, which dynctl up -f takes back; JSON
is the declaration as it is stored. The table has beside each count how many of them serve.`,
		examples: []string{
			"dynctl get topology",
			"dynctl get topology -o yaml > topology.yaml",
			"dynctl get topology --watch",
		},
		args: noArgs,
		see:  []string{"dynctl up", "dynctl diff", "dynctl rollback"},
	})
}

// topologyRow is the desired state of the cluster and how much of it there is.
type topologyRow struct {
	cluster.Topology
	cluster  string // its name
	ready    map[cluster.Role]int
	settings map[string]json.RawMessage // at run time
	origin   string                     // its namespace
}

// topologyKind prints the desired state.
func topologyKind() kind[topologyRow] {
	return kind[topologyRow]{
		what: "topology", single: true,
		items: func(ctx context.Context, s scene) ([]topologyRow, error) {
			if s.v.Topology == nil {
				return nil, nil
			}
			settings, err := s.c.Settings(ctx)
			if err != nil {
				return nil, err
			}
			return []topologyRow{{*s.v.Topology, s.c.Name, ready(s.v), settings, s.c.Namespace}}, nil
		},
		file:  topologyRow.file,
		name:  func(t topologyRow) string { return t.cluster },
		table: topologyTable,
		below: func(s scene, _ []topologyRow) { s.inv.unmet(s.v) },
		empty: func(s scene) string {
			return "nothing was ever declared in cluster " + s.c.Name + "; declare something: dynctl up"
		},
	}
}

// unmet says below a table why the cluster is not as declared.
func (inv *invocation) unmet(v client.View) {
	w := inv.stdout()
	if !inv.env.Streams.OutTTY {
		w = inv.env.Streams.Err // the table is for programs
	}
	for _, why := range v.Unmet() {
		_, _ = io.WriteString(w, term.Clean(why)+"\n") // as for the table above it
	}
}

// file is the topology as a file, which says where it comes from.
func (t topologyRow) file() ([]byte, error) {
	f := topofile.Of(cluster.Revision{Topology: t.Topology, Settings: t.settings})
	f.Namespace = t.origin
	text, err := f.YAML()
	head := fmt.Sprintf("# cluster %s, generation %d", t.cluster, t.Generation)
	if !t.UpdatedAt.IsZero() {
		head += ", " + t.UpdatedAt.UTC().Format(time.RFC3339)
	}
	if t.UpdatedBy != "" {
		head += " by " + t.UpdatedBy
	}
	return append([]byte(head+"\n"), text...), err
}

// ready counts the workers that serve.
func ready(v client.View) map[cluster.Role]int {
	n := map[cluster.Role]int{}
	for _, w := range v.Workers() {
		if w.State.Serving() {
			n[w.Role]++
		}
	}
	return n
}

func topologyTable(s scene, items []topologyRow, wide bool) *table {
	tty := s.inv.env.Streams.OutTTY
	changed := "CHANGED"
	if tty {
		changed = ">CHANGED"
	}
	titles := []string{"CLUSTER", "~MODEL", ">PREFILL", ">DECODE", ">GENERATION", changed, "~BY"}
	if wide {
		titles = append(titles, "PATH", "WEIGHTS", ">BLOCK SIZE", ">KV BLOCKS", "KV TYPE", "DEVICE")
	}
	t := newTable(titles...)
	for _, d := range items {
		at := "-"
		switch {
		case d.UpdatedAt.IsZero():
		case tty:
			at = age(s.inv.env.Now().Sub(d.UpdatedAt)) + " ago"
		default:
			at = d.UpdatedAt.UTC().Format(time.RFC3339)
		}
		count := func(r cluster.Role) string { return fmt.Sprintf("%d/%d", d.ready[r], d.Count(r)) }
		row := []string{d.cluster, orDash(d.Model.Name), count(cluster.RolePrefill), count(cluster.RoleDecode), strconv.FormatInt(d.Generation, 10), at, orDash(d.UpdatedBy)}
		if wide {
			number := func(n int) string {
				if n == 0 {
					return "-"
				}
				return strconv.Itoa(n)
			}
			path := d.Model.Path
			if path == "" {
				path = "(built-in)"
			}
			row = append(row, path, orDash(d.Model.Quantize), number(d.Engine.BlockSize), number(d.Engine.KVBlocks), orDash(d.Engine.KVDType), orDash(d.Engine.Device))
		}
		t.add(row...)
	}
	return t
}
