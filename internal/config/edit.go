package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ErrNotEditable is returned by Table.Edit for a file in a form that it cannot change
// without touching something else.
var ErrNotEditable = errors.New("cannot be edited line by line: set the key by hand")

// Edit returns a configuration file with one key set to a value, read as on a command
// line. Only lines of that key change: comments, order and all other values stay. A key
// that is not there yet comes after its own comment, as the example file has it, else at
// the end of its section. path is for messages.
//
// The error is [Problems] for a value that is wrong or a file that is wrong already, or
// wraps [ErrNotEditable].
func (t Table) Edit(path string, content []byte, name, text string) ([]byte, error) {
	key, ok := t.Key(name)
	if !ok {
		names := make([]string, len(t.Keys))
		for i, k := range t.Keys {
			names[i] = k.Name
		}
		return nil, Problems{{Text: fmt.Sprintf("unknown key %s%s", name, didYouMean(name, names))}}
	}
	value, err := key.parse(text, "")
	if err != nil {
		return nil, Problems{{Key: name, Text: err.Error()}}
	}
	before, problems := t.readFile(path, content, "")
	if err := problems.err(); err != nil {
		return nil, err
	}
	e := editor{table: t, key: key, line: lastPart(name) + ": " + scalar(value)}
	if err := e.open(content); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, candidate := range e.candidates() {
		after, problems := t.readFile(path, candidate, "")
		if len(problems) == 0 && onlyDiffers(before, after, name, value) {
			return candidate, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", path, ErrNotEditable)
}

// onlyDiffers reports whether two layers are the same but for one key.
func onlyDiffers(before, after layer, name string, value any) bool {
	if !reflect.DeepEqual(after[name].value, value) {
		return false
	}
	for k := range after {
		if _, ok := before[k]; !ok && k != name {
			return false
		}
	}
	for k, s := range before {
		if k != name && !reflect.DeepEqual(after[k].value, s.value) {
			return false
		}
	}
	return true
}

// plainScalar is text that YAML reads as it stands.
var plainScalar = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_./+-]*$`)

// scalar writes a value in the form of a file, on one line.
func scalar(v any) string {
	quoted := func(s string) string {
		if plainScalar.MatchString(s) && !strings.EqualFold(s, "null") {
			return s
		}
		var b bytes.Buffer
		enc := json.NewEncoder(&b) // what JSON quotes, YAML reads
		enc.SetEscapeHTML(false)
		_ = enc.Encode(s) // a string can always be written
		return strings.TrimSpace(b.String())
	}
	switch v := v.(type) {
	case []string:
		items := make([]string, len(v))
		for i, item := range v {
			items[i] = quoted(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case Secret:
		return quoted(v.Reveal())
	case string:
		return quoted(v)
	}
	return format(v)
}

// editor changes the lines of one file.
type editor struct {
	table Table
	key   Key
	line  string // what shall stand there, without indentation

	lines   []string   // of the file, without their ends
	root    *yaml.Node // its mapping; nil if it has no content
	newline string
}

func (e *editor) open(content []byte) error {
	e.newline = "\n"
	if bytes.Contains(content, []byte("\r\n")) {
		e.newline = "\r\n"
	}
	if text := strings.TrimRight(string(content), "\r\n"); text != "" {
		e.lines = strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(content, &doc); err != nil {
		return err
	}
	if len(doc.Content) > 0 && doc.Content[0].Kind == yaml.MappingNode {
		e.root = doc.Content[0]
	}
	return nil
}

// entry finds a key in a mapping; next is the line on which the one after it begins, from
// 1, or one after the last line of the file.
func (e *editor) entry(m *yaml.Node, name string) (key, value *yaml.Node, next int) {
	next = len(e.lines) + 1
	if m == nil {
		return nil, nil, next
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value != name {
			continue
		}
		if i+2 < len(m.Content) {
			next = m.Content[i+2].Line
		}
		return m.Content[i], m.Content[i+1], next
	}
	return nil, nil, next
}

// candidates are possible results, the likeliest first. Not all of them are right.
func (e *editor) candidates() [][]byte {
	section := e.key.Section()
	if section == "" {
		if key, value, next := e.entry(e.root, e.key.Name); key != nil {
			return e.replace(key, value, next)
		}
		return e.insert("", 1, len(e.lines)+1, len(e.lines)+1)
	}
	head, body, next := e.entry(e.root, section)
	if head == nil {
		gap := []string{section + ":", "  " + e.line}
		if len(e.lines) > 0 {
			gap = append([]string{""}, gap...)
		}
		return [][]byte{e.with(len(e.lines)+1, len(e.lines)+1, gap...)}
	}
	if body.Kind != yaml.MappingNode {
		return e.insert("  ", head.Line+1, next, head.Line+1) // a section of nothing but comments
	}
	key, value, after := e.entry(body, lastPart(e.key.Name))
	if key != nil {
		return e.replace(key, value, min(after, next))
	}
	indent := strings.Repeat(" ", body.Content[0].Column-1)
	return e.insert(indent, head.Line+1, next, lastLine(body)+1)
}

// replace puts the new line in the place of a key and its value, which may go on for
// lines: the shortest that is right wins. A comment on the line stays.
func (e *editor) replace(key, value *yaml.Node, next int) (out [][]byte) {
	text := strings.Repeat(" ", key.Column-1) + e.line
	if c := value.LineComment; c != "" && value.Line == key.Line && !strings.Contains(c, "\n") {
		text += "  " + c
	}
	for end := max(lastLine(value), key.Line); end < next; end++ {
		out = append(out, e.with(key.Line, end+1, text))
	}
	return out
}

// insert puts the new line after the commented default between two lines, if that is
// there, else before line at.
func (e *editor) insert(indent string, from, to, at int) (out [][]byte) {
	sample := regexp.MustCompile(`^\s*#\s?` + regexp.QuoteMeta(lastPart(e.key.Name)) + `:(\s|$)`)
	for n := from; n < to && n <= len(e.lines); n++ {
		if sample.MatchString(e.lines[n-1]) {
			out = append(out, e.with(n+1, n+1, indent+e.line))
		}
	}
	return append(out, e.with(at, at, indent+e.line))
}

// with is the file with lines in the place of those from one up to another.
func (e *editor) with(from, to int, lines ...string) []byte {
	all := append([]string{}, e.lines[:from-1]...)
	all = append(all, lines...)
	all = append(all, e.lines[min(to-1, len(e.lines)):]...)
	return []byte(strings.Join(all, e.newline) + e.newline)
}

// lastLine is the last line on which a node of the tree begins.
func lastLine(n *yaml.Node) int {
	line := n.Line
	for _, c := range n.Content {
		line = max(line, lastLine(c))
	}
	return line
}

// lastPart is a key without its section.
func lastPart(name string) string {
	if _, last, ok := strings.Cut(name, "."); ok {
		return last
	}
	return name
}
