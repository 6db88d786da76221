package topofile

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dynctl/dynctl/internal/config"
)

// servers reads the list of attached servers.
func (r *reader) servers(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.SequenceNode {
		r.wrong(attachedSection, place(n), "%s is not a list of servers, each with url, engine, role and model", config.DescribeNode(n))
		return
	}
	for _, item := range n.Content {
		r.server(item)
	}
}

// server reads one attached server.
func (r *reader) server(n *yaml.Node) {
	url := ""
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == "url" && n.Content[i+1].Kind == yaml.ScalarNode {
				url = n.Content[i+1].Value
			}
		}
	}
	at := attachedSection + "." + url
	switch _, twice := r.at[at]; {
	case url == "":
		r.wrong(attachedSection, place(n), "%s is not a server with a url", config.DescribeNode(n))
		return
	case twice:
		r.wrong(at, place(n), "this server is there twice")
		return
	}
	r.at[at] = place(n)
	attachedFields()[0].at(url).set(&r.file, "") // there it is, though nothing else may be said of it
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if name.Value == "url" {
			continue
		}
		fd, known := field(at + "." + name.Value)
		_, twice := r.at[at+"."+name.Value]
		switch {
		case !known || name.Kind != yaml.ScalarNode:
			r.wrong(at, place(name), "unknown key %s%s; expected one of url, %s", name.Value, hintAttached(name.Value), strings.Join(attachedKeys(), ", "))
		case twice:
			r.wrong(at, place(name), "%s is set twice", name.Value)
		default:
			r.value(fd, value, place(value))
		}
	}
}

func hintAttached(name string) string {
	if near := config.Nearest(name, attachedKeys()); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

func attachedKeys() (names []string) {
	for _, fd := range attachedFields() {
		names = append(names, fd.Path)
	}
	return names
}

// servers writes the list of attached servers.
func (f File) servers() (*yaml.Node, error) {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, a := range f.Topology.Attached {
		item := &yaml.Node{Kind: yaml.MappingNode}
		if err := put(item, "url", a.URL()); err != nil {
			return nil, err
		}
		for _, fd := range attachedFields() {
			if v := fd.at(a.URL()).Get(f); v != nil {
				if err := put(item, fd.Path, fd.written(v)); err != nil {
					return nil, err
				}
			}
		}
		list.Content = append(list.Content, item)
	}
	return list, nil
}

// put adds a key with its value to a mapping.
func put(mapping *yaml.Node, name string, v any) error {
	value := &yaml.Node{}
	if err := value.Encode(v); err != nil {
		return err
	}
	if value.Kind == yaml.SequenceNode {
		value.Style = yaml.FlowStyle
	}
	mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, value)
	return nil
}

// schemaOfAttached describes one attached server.
func schemaOfAttached() map[string]any {
	item := object("A server that runs already.")
	of := item["properties"].(map[string]any)
	of["url"] = map[string]any{"type": "string", "description": "where it listens, like http://gpu-3:8001"}
	for _, fd := range attachedFields() {
		of[fd.Path] = fd.schema()
	}
	item["required"] = []string{"url", "engine", "role", "model"}
	return item
}
