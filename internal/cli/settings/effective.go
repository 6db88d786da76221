package settings

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
)

// Sources of values that no single node has chosen.
const (
	sourceDefault = "default"
	sourceNodes   = "nodes differ"
)

// Now are all settings with their values now.
func Now(ctx context.Context, c *client.Cluster) ([]Setting, error) {
	v, err := c.View(ctx)
	if err != nil {
		return nil, err
	}
	return All(ctx, c, v.Nodes)
}

// weigh finds the value that counts and where it comes from. Nodes that do not tell their own
// configuration are passed over; if none tells, the value stays unknown.
func (s *Setting) weigh(k config.Key, nodes []cluster.Node) {
	if s.Origin == OriginCluster {
		s.Effective, s.Source, s.shown = s.Value, OriginCluster, s.text
		return
	}
	s.Source = originNode
	on := map[string][]string{}    // nodes by value
	chose := map[string][]string{} // nodes by what they have it from
	byNode := map[string]any{}
	for _, n := range nodes {
		if n.Settings == nil {
			continue
		}
		own, ok := n.Settings[k.Name]
		text := config.Value{Value: k.Default}.Text()
		byNode[n.Name] = s.Default
		if ok {
			text = own.Value
			chose[own.Origin] = append(chose[own.Origin], n.Name)
			if v, err := k.ParseRuntime(own.Value); err == nil {
				byNode[n.Name] = config.Value{Value: v}.Plain()
			} else {
				byNode[n.Name] = own.Value
			}
		}
		on[text] = append(on[text], n.Name)
	}
	switch {
	case len(on) == 0:
	case len(on) > 1:
		s.Source, s.ByNode, s.shown = sourceNodes, byNode, places(on)
	default:
		for text, names := range on {
			s.shown, s.Effective = text, byNode[names[0]]
		}
		s.Source = cmp.Or(places(chose), sourceDefault)
	}
}

// places are texts with the nodes that have them: "kv on node-1; random on node-2".
func places(nodes map[string][]string) string {
	var out []string
	for _, text := range slices.Sorted(maps.Keys(nodes)) {
		names := nodes[text]
		slices.SortFunc(names, human.CompareNodes)
		out = append(out, text+" on "+human.Names(names))
	}
	return strings.Join(out, "; ")
}
