package fleet

import (
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// NodePrefix marks the name of a node where workers are named, too.
const NodePrefix = "node/"

// Target is a worker or a node that a command line names.
type Target struct {
	Name string
	Node bool
}

// Targets reads names of workers, and of nodes where they begin with "node/".
func Targets(args []string) []Target {
	var out []Target
	for _, arg := range args {
		name, node := strings.CutPrefix(arg, NodePrefix)
		out = append(out, Target{Name: name, Node: node})
	}
	return out
}

// Nodes reads names of nodes, with the prefix or without it.
func Nodes(args []string) []Target {
	out := Targets(args)
	for i := range out {
		out[i].Node = true
	}
	return out
}

// Resolve gives targets that are named by instance ids their names.
func Resolve(v client.View, targets []Target) {
	for i := range targets {
		targets[i].Name = v.NameOf(targets[i].Name)
	}
}

// String is the target as a command line names it.
func (t Target) String() string {
	if t.Node {
		return NodePrefix + t.Name
	}
	return t.Name
}

// Names are targets as a command line names them.
func Names(targets []Target) []string {
	names := make([]string, len(targets))
	for i, t := range targets {
		names[i] = t.String()
	}
	return names
}

// List names targets in a message.
func List(targets []Target) string { return strings.Join(Names(targets), ", ") }

// Worker finds what is ordered of a worker; action begins the message when there is no
// worker of that name.
func Worker(s *session.Session, action, name string, v client.View) (cluster.Assignment, error) {
	if a, ok := v.Assignments[name]; ok {
		return a, nil
	}
	return cluster.Assignment{}, NoWorker(s, action, name, v)
}

// NoWorker is the error about a name that no worker has.
func NoWorker(s *session.Session, action, name string, v client.View) error {
	var live []string
	for _, w := range v.Workers() {
		live = append(live, w.Name)
	}
	f := &exit.Failure{
		Action: action, Err: fmt.Errorf("%w in cluster %s", client.ErrNoWorker, s.Config.Cluster),
		Facts: []string{"live workers: " + human.Names(live)}, Tries: []string{"dynctl ps"},
	}
	if _, err := cluster.WorkerNumber(name); err != nil {
		f.Facts = append(f.Facts, "names look like worker-7")
	}
	return f
}

// Node finds a node by its name, or its id.
func Node(s *session.Session, action, name string, v client.View) (cluster.Node, error) {
	var names []string
	for _, n := range v.Nodes {
		if n.Name == name || n.ID == name {
			return n, nil
		}
		names = append(names, n.Name)
	}
	f := &exit.Failure{Action: action, Err: fmt.Errorf("no such node in cluster %s", s.Config.Cluster), Tries: []string{"dynctl ps --nodes"}}
	if len(names) > 0 {
		f.Facts = []string{"live nodes: " + strings.Join(names, ", ")}
	}
	return cluster.Node{}, f
}
