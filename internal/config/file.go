package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// setting is one typed value of one layer.
type setting struct {
	value  any
	origin Origin
	note   string // on a former spelling, or empty
}

// layer holds the settings of one layer by key name.
type layer map[string]setting

// readFile parses a configuration file. It returns what is right in it and all
// that is wrong; path is only used in messages.
func (t Table) readFile(path string, content []byte, home string) (layer, Problems) {
	r := fileReader{table: t, path: path, home: home, out: layer{}}
	dec := yaml.NewDecoder(bytes.NewReader(content))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return r.out, nil // empty, or nothing but comments
	case err != nil:
		r.syntax(err)
		return r.out, r.problems
	}
	r.mapping("", doc.Content[0])
	var second yaml.Node
	if err := dec.Decode(&second); err == nil {
		r.wrong("", second.Line, "a second document starts here; expected one")
	} else if !errors.Is(err, io.EOF) {
		r.syntax(err)
	}
	return r.out, r.problems
}

type fileReader struct {
	table    Table
	path     string
	home     string
	out      layer
	problems Problems
}

func (r *fileReader) wrong(key string, line int, format string, args ...any) {
	r.problems = append(r.problems, Problem{
		Key:    key,
		Origin: Origin{Kind: FromFile, Name: r.path, Line: line},
		Text:   fmt.Sprintf(format, args...),
	})
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax turns "yaml: line 3: did not find ..." into a problem with that line.
func (r *fileReader) syntax(err error) {
	text := err.Error()
	m := yamlLine.FindStringSubmatch(text)
	line := 0
	if m != nil {
		text = strings.TrimPrefix(text, m[0])
		line, _ = strconv.Atoi(m[1])
	}
	r.wrong("", line, "not valid YAML: %s", text)
}

// mapping reads the keys of one mapping; prefix is the section, empty at the top.
func (r *fileReader) mapping(prefix string, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return // a section with nothing but comments
	}
	if n.Kind != yaml.MappingNode {
		if prefix == "" {
			r.wrong("", n.Line, "%s; expected keys like %s: ...", DescribeNode(n), r.table.Keys[0].Name)
		} else {
			r.wrong(prefix, n.Line, "%s; this is a section: expected keys like %s", DescribeNode(n), r.firstOf(prefix))
		}
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		full := name.Value
		if prefix != "" {
			full = prefix + "." + name.Value
		}
		key, known := r.table.Key(full)
		if !known {
			key, known = r.table.renamed(full)
		}
		switch {
		case name.Kind != yaml.ScalarNode || name.Tag == "!!merge":
			r.wrong(prefix, name.Line, "%s is not the name of a key", DescribeNode(name))
		case known:
			r.leaf(key, full, name.Line, value)
		case prefix == "" && r.table.isSection(full):
			r.mapping(full, value)
		default:
			r.wrong("", name.Line, "unknown key %s%s", full, didYouMean(full, r.candidates(value)))
		}
	}
}

// candidates are the names that may stand in front of a value of this form.
func (r *fileReader) candidates(value *yaml.Node) []string {
	var names []string
	if value.Kind == yaml.MappingNode {
		for _, s := range r.table.Sections {
			if s.Name != "" {
				names = append(names, s.Name)
			}
		}
		return names
	}
	for _, k := range r.table.Keys {
		names = append(names, k.Name)
	}
	return names
}

func (r *fileReader) firstOf(section string) string {
	for _, k := range r.table.Keys {
		if k.Section() == section {
			return k.Name
		}
	}
	return ""
}

// leaf reads the value of a key, which the file calls name.
func (r *fileReader) leaf(key Key, name string, line int, n *yaml.Node) {
	if first, twice := r.out[key.Name]; twice {
		r.wrong(key.Name, line, "set twice; first in line %d", first.origin.Line)
		return
	}
	v, err := r.value(key, n)
	if err != nil {
		r.wrong(key.Name, line, "%v", err)
		return
	}
	origin := Origin{Kind: FromFile, Name: r.path, Line: line}
	r.out[key.Name] = setting{v, origin, key.formerIn(name, n)}
}

// formerIn is FormerSpelling for a node of a file.
func (k Key) formerIn(name string, n *yaml.Node) string {
	items := []string{n.Value}
	for _, item := range n.Content {
		items = append(items, item.Value)
	}
	return k.FormerSpelling(name, strings.Join(items[min(1, len(items)-1):], ","))
}

func (r *fileReader) value(key Key, n *yaml.Node) (any, error) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return nil, fmt.Errorf("has no value; expected %s", key.Expect())
	case n.Kind == yaml.ScalarNode:
		return key.parse(n.Value, r.home)
	case n.Kind == yaml.SequenceNode && key.Kind == KindList:
		items := []string{}
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode || item.Tag == "!!null" || item.Value == "" {
				return nil, fmt.Errorf("%s in a list; expected %s", DescribeNode(item), key.Expect())
			}
			items = append(items, item.Value)
		}
		v := key.current(items)
		return v, key.check(v)
	}
	return nil, fmt.Errorf("%s is not %s", DescribeNode(n), key.Expect())
}

// DescribeNode names a YAML node in words, for errors about it.
func DescribeNode(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "the alias *" + n.Value
	}
	if n.Tag == "!!null" || n.Value == "" {
		return "an empty value"
	}
	return strconv.Quote(n.Value)
}
