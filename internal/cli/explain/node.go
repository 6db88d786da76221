package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// NodeOptions explain a node.
type NodeOptions struct {
	Session *session.Session
	Node    string
}

func nodeCommand(a *command.App) *cobra.Command {
	return a.Command(command.Verb{
		Use: "node <node>", Short: "Explain a node: its state, what it runs and why, and what depends on it",
		Examples: []string{
			"dynctl explain node node-1",
			"dynctl explain node node-1 -o json | jq .node.devices",
			"dynctl explain node node-1 -o yaml",
		},
		Args: command.One("node"), Complete: complete.First(complete.From(a, complete.NodeNames)),
		See: []string{"dynctl get nodes", "dynctl explain lease", "dynctl doctor"},
		Options: func(s *session.Session, args []string) command.Runner {
			return &NodeOptions{Session: s, Node: args[0]}
		},
	})
}

// Run prints the explanation.
func (o *NodeOptions) Run(ctx context.Context) error {
	s := o.Session
	action := "cannot explain " + o.Node
	c, v, err := s.Look(ctx, action)
	if err != nil {
		return err
	}
	o.Node = v.NameOf(o.Node)
	leader, _ := c.Leader(ctx) // without an answer nobody is called the leader
	x, ok := explainNode(v, c.Nodes(ctx, v), o.Node, leader)
	if !ok {
		var names []string
		for _, n := range v.Nodes {
			names = append(names, n.Name)
		}
		return &exit.Failure{Action: action, Err: fmt.Errorf("no such node in cluster %s", s.Config.Cluster), Facts: []string{"nodes: " + human.Names(names)}, Tries: []string{"dynctl get nodes"}}
	}
	if x.Node == nil {
		x.mark, x.paint = "✕", s.Out.Palette().Bad
	} else {
		x.mark, x.paint = "●", s.Out.Palette().Good
	}
	return x.answer(s)
}

// explainNode finds a node by its name or id. One that is gone is known by what it was to
// run.
func explainNode(v client.View, nodes []cluster.Node, name, leader string) (*Explanation, bool) {
	for _, row := range fleet.NodeRows(v, nodes) {
		if row.Name == name || row.ID == name {
			return explainLiveNode(v, row, leader), true
		}
	}
	var left []string
	for _, worker := range slices.SortedFunc(maps.Keys(v.Assignments), cluster.CompareNames) {
		if id := v.Assignments[worker].Node; id != "" && (id == name || strings.HasPrefix(id, name+"-")) {
			left = append(left, worker)
		}
	}
	if len(left) == 0 {
		return nil, false
	}
	x := &Explanation{
		Kind: "node", Name: name, State: "gone",
		Why:  "its lease has ended: the agent died, froze, or is cut off from the store",
		Next: "the controller places its workers on nodes that have room",
		Try:  []string{"dynctl logs", "dynctl doctor"}, needsNode: true,
	}
	x.fact("workers", "%s", human.Names(left))
	return x, true
}

func explainLiveNode(v client.View, n fleet.NodeRow, leader string) *Explanation {
	x := &Explanation{
		Kind: "node", Name: n.Name, State: "up", Node: &n,
		Why: "its agent runs and keeps its lease", Next: "it takes workers when the topology asks for some",
		Try: []string{"dynctl explain lease " + n.Name},
	}
	x.since(n.StartedAt)
	for _, text := range n.Alarms {
		x.fact("alarm", "%s", text)
	}
	x.fact("host", "%s, process %d, version %s", human.OrDash(n.Host), n.PID, human.OrDash(n.Version))
	for _, d := range n.Devices {
		text := human.Device(v.Nodes, n.ID, d.ID)
		if d.MemoryBytes > 0 {
			text += ", " + human.Bytes(d.MemoryBytes)
		}
		if d.ISA != "" {
			text += ", " + d.ISA
		}
		x.fact("device", "%s", text)
	}
	switch {
	case n.GPU == nil: // of a release that does not look
	case len(n.GPU.GPUs) == 0:
		x.fact("gpus", "none: %s", n.GPU.Missing)
	default:
		for _, g := range n.GPU.GPUs {
			x.fact(fmt.Sprintf("gpu %d", g.Index), "%s", gpuText(g))
		}
	}
	workers := v.Workers()
	for _, name := range n.Workers {
		w := workers[slices.IndexFunc(workers, func(w cluster.Worker) bool { return w.Name == name })] // nodeRows has it from there
		text := fmt.Sprintf("%s %s on %s, %s", name, w.Role, human.Place(v.Nodes, w), w.State)
		if w.Reason != "" {
			text += ": " + w.Reason
		}
		x.fact("worker", "%s", text)
	}
	if len(n.Workers) == 0 {
		x.fact("workers", "none: the topology has no worker for it")
	}
	for _, r := range n.Roles {
		x.fact("prefers", "%s workers; others come here only when no other node takes them", r)
	}
	if n.FrontendURL != "" {
		x.fact("frontend", "%s", n.FrontendURL)
	}
	var holds []string
	if n.EmbeddedEtcd {
		holds = append(holds, "etcd")
	}
	if n.EmbeddedNATS {
		holds = append(holds, "NATS")
	}
	if len(holds) > 0 {
		x.fact("stores", "%s of the cluster: without this node there is no cluster", strings.Join(holds, " and "))
	}
	if leader != "" && leader == n.Name {
		x.fact("leads", "its controller decides where workers run")
	}
	return x
}
