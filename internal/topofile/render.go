package topofile

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// YAML writes the file: what is set, in the order of [Fields], then pools and attached servers. [Parse] reads it back.
func (f File) YAML() ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, fd := range all(f) {
		v := fd.Get(f)
		if v == nil || strings.HasPrefix(fd.Path, attachedSection+".") {
			continue
		}
		at := root
		parts := strings.Split(fd.Path, ".")
		for _, name := range parts[:len(parts)-1] {
			at = below(at, name)
		}
		if err := put(at, parts[len(parts)-1], fd.written(v)); err != nil {
			return nil, fmt.Errorf("write %s: %w", fd.Path, err)
		}
	}
	if len(f.Topology.Attached) > 0 {
		servers, err := f.servers()
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", attachedSection, err)
		}
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: attachedSection}, servers)
	}
	var b strings.Builder
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return nil, fmt.Errorf("write the topology: %w", err)
	}
	if err := enc.Close(); err != nil {
		return nil, fmt.Errorf("write the topology: %w", err)
	}
	return []byte(b.String()), nil
}

// below returns the section of that name, made if need be.
func below(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	section := &yaml.Node{Kind: yaml.MappingNode}
	n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, section)
	return section
}
