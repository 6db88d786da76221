package get

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/listing"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/topofile"
)

func getTopologyCommand(a *command.App) *cobra.Command {
	return kindCommand(a, topologyKind(), "", command.Verb{
		Use: "topology", Short: "Print what is declared: the model, and how many workers of each role",
		Long: `YAML is a topology file, with the settings at run time, which dynctl up -f takes back; JSON
is the declaration as it is stored. The table has beside each count how many of them serve.`,
		Examples: []string{
			"dynctl get topology",
			"dynctl get topology -o yaml > topology.yaml",
			"dynctl get topology --watch",
		},
		Args: command.NoArgs,
		See:  []string{"dynctl up", "dynctl diff", "dynctl rollback"},
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
func topologyKind() listing.Kind[topologyRow] {
	return listing.Kind[topologyRow]{
		What: "topology", Single: true,
		Items: func(ctx context.Context, s listing.Scene) ([]topologyRow, error) {
			if s.View.Topology == nil {
				return nil, nil
			}
			settings, err := s.Cluster.Settings(ctx)
			if err != nil {
				return nil, err
			}
			return []topologyRow{{*s.View.Topology, s.Cluster.Name, ready(s.View), settings, s.Cluster.Namespace}}, nil
		},
		File:  topologyRow.file,
		Name:  func(t topologyRow) string { return t.cluster },
		Table: topologyTable,
		Below: func(s listing.Scene, _ []topologyRow) { unmet(s.Session, s.View) },
		Empty: func(s listing.Scene) string {
			return "nothing was ever declared in cluster " + s.Cluster.Name + "; declare something: dynctl up"
		},
	}
}

// unmet says below a table why the cluster is not as declared.
func unmet(s *session.Session, v client.View) {
	w := s.Out.Beside()
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

func topologyTable(s listing.Scene, items []topologyRow, wide bool) *output.Table {
	tty := s.Session.Out.Streams.OutTTY
	changed := "CHANGED"
	if tty {
		changed = ">CHANGED"
	}
	titles := []string{"CLUSTER", "~MODEL", ">PREFILL", ">DECODE", ">ENCODE", ">GENERATION", changed, "~BY"}
	if wide {
		titles = append(titles, "PATH", "WEIGHTS", ">BLOCK SIZE", ">KV BLOCKS", "KV TYPE", "DEVICE")
	}
	t := output.NewTable(titles...)
	for _, d := range items {
		at := "-"
		switch {
		case d.UpdatedAt.IsZero():
		case tty:
			at = human.Age(s.Session.Out.Now().Sub(d.UpdatedAt)) + " ago"
		default:
			at = d.UpdatedAt.UTC().Format(time.RFC3339)
		}
		count := func(r cluster.Role) string { return fmt.Sprintf("%d/%d", d.ready[r], d.CountAll(r)) }
		row := []string{d.cluster, human.OrDash(d.Model.Name), count(cluster.RolePrefill), count(cluster.RoleDecode), count(cluster.RoleEncode), strconv.FormatInt(d.Generation, 10), at, human.OrDash(d.UpdatedBy)}
		if wide {
			number := func(n int) string {
				if n == 0 {
					return "-"
				}
				return strconv.Itoa(n)
			}
			path := d.Model.Path
			switch {
			case d.OfServer():
				path = "(server)"
			case d.Model.Builtin() != "":
				path = "(built-in)"
			}
			row = append(row, path, human.OrDash(d.Model.Quantize), number(d.Engine.BlockSize), number(d.Engine.KVBlocks), human.OrDash(d.Engine.KVDType), human.OrDash(d.Engine.Device))
		}
		t.Add(row...)
	}
	return t
}
