package topofile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
)

// Source says where a file came from.
type Source struct {
	Name string // in messages
	Dir  string // where relative paths of the file begin; empty leaves them as they are
	Home string // what "~/" stands for; empty leaves it
}

// MaxBytes is the size of the largest file that is read.
const MaxBytes = 1 << 20

// Parse reads a file and checks everything that can be checked without a cluster. The
// error is [Problems].
func Parse(src Source, content []byte) (File, error) {
	r := reader{src: src, at: map[string]position{}}
	if r.read(content) {
		r.finish()
	}
	if len(r.problems) > 0 {
		return File{}, r.problems.sorted()
	}
	return r.file, nil
}

type position struct{ line, column int }

type reader struct {
	src      Source
	file     File
	at       map[string]position // of fields and sections
	problems Problems
}

func (r *reader) wrong(path string, at position, format string, args ...any) {
	r.problems = append(r.problems, Problem{File: r.src.Name, Line: at.line, Column: at.column, Path: path, Text: fmt.Sprintf(format, args...)})
}

func place(n *yaml.Node) position { return position{n.Line, n.Column} }

// read reports whether there was a document.
func (r *reader) read(content []byte) bool {
	if len(content) > MaxBytes {
		r.wrong("", position{}, "%d bytes are more than a topology has; the limit is %s", len(content), config.Size(MaxBytes))
		return false
	}
	dec := yaml.NewDecoder(bytes.NewReader(content))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		r.wrong("", position{}, "the file is empty; the shortest topology is: decode: 1")
		return false
	case err != nil:
		r.syntax(err)
		return false
	}
	r.section("", doc.Content[0])
	var second yaml.Node
	if err := dec.Decode(&second); err == nil {
		r.wrong("", place(&second), "a second document starts here; use one file for each namespace")
	} else if !errors.Is(err, io.EOF) {
		r.syntax(err)
	}
	return true
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax turns "yaml: line 3: did not find ..." into a problem with that line.
func (r *reader) syntax(err error) {
	text, at := err.Error(), position{}
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		text = strings.TrimPrefix(text, m[0])
		at.line, _ = strconv.Atoi(m[1]) // 0 without
	}
	r.wrong("", at, "not valid YAML: %s", text)
}

// section reads the keys below a path, which is empty at the top.
func (r *reader) section(path string, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag != "!!null" && isRole(base(path)) {
		fd, _ := field(path + ".workers") // the short form: decode: 4
		r.value(fd, n, place(n))
		return
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" && path != "" {
		return // a section with nothing but comments
	}
	if path == attachedSection {
		r.servers(n)
		return
	}
	if n.Kind != yaml.MappingNode {
		r.wrong(path, place(n), "%s is not a section; expected one of the keys %s", config.DescribeNode(n), strings.Join(keysBelow(path), ", "))
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		r.entry(path, n.Content[i], n.Content[i+1])
	}
}

func (r *reader) entry(section string, name, value *yaml.Node) {
	if name.Kind != yaml.ScalarNode || name.Tag == "!!merge" {
		r.wrong(section, place(name), "%s is not the name of a key", config.DescribeNode(name))
		return
	}
	path := name.Value
	if section != "" {
		path = section + "." + path
	}
	if section == poolSection && !cluster.PoolName.MatchString(name.Value) {
		r.wrong(section, place(name), "%q is not the name of a pool: lower-case letters, digits and -, at most 63", name.Value)
		return
	}
	fd, known := field(path)
	if known {
		if note := fd.Key.FormerSpelling(path, value.Value); note != "" {
			r.file.Notes = append(r.file.Notes, fmt.Sprintf("%s:%d: %s", r.src.Name, name.Line, note))
		}
		path = fd.Path
	}
	known = known || isSection(path)
	if first, twice := r.at[path]; twice && known {
		r.wrong(path, place(name), "set twice; first in line %d", first.line)
		return
	}
	r.at[path] = place(name)
	switch {
	case !known:
		r.wrong(path, place(name), "unknown key%s; expected one of %s", hint(name.Value, section), strings.Join(keysBelow(section), ", "))
	case isSection(path):
		r.section(path, value)
	default:
		r.value(fd, value, place(value))
	}
}

// value reads one field.
func (r *reader) value(fd Field, n *yaml.Node, at position) {
	r.at[fd.Path] = at
	v, err := r.typed(fd, n)
	if err == nil {
		err = fd.check(v)
	}
	if err != nil {
		r.wrong(fd.Path, at, "%v", err)
		return
	}
	fd.set(&r.file, v)
}

func (r *reader) typed(fd Field, n *yaml.Node) (any, error) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return nil, fmt.Errorf("has no value; expected %s", fd.Expect())
	case n.Kind == yaml.ScalarNode:
		return fd.parse(n.Value, r.src)
	case n.Kind == yaml.SequenceNode && fd.Key.Kind == config.KindList:
		items := []string{}
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode || item.Tag == "!!null" || item.Value == "" {
				return nil, fmt.Errorf("%s in a list; expected %s", config.DescribeNode(item), fd.Expect())
			}
			items = append(items, item.Value)
		}
		return items, nil
	case fd.form != plainText:
		return fd.form.words(n, fd)
	}
	return nil, fmt.Errorf("%s is not %s", config.DescribeNode(n), fd.Expect())
}

// parse reads the text of a value.
func (fd Field) parse(text string, src Source) (any, error) {
	if fd.Key.Kind == config.KindPath {
		if path, ok := cluster.BuiltinPath(text); ok && base(fd.Path) == modelPath {
			return path, nil
		}
		if rest, ok := strings.CutPrefix(text, "~/"); ok && src.Home != "" {
			return filepath.Join(src.Home, rest), nil
		}
		if text != "" && !filepath.IsAbs(text) && src.Dir != "" {
			return filepath.Join(src.Dir, text), nil
		}
		return text, nil
	}
	if fd.setting {
		return fd.Key.ParseRuntime(text)
	}
	return fd.Key.Parse(text)
}

// check refuses what the key of a field cannot know.
func (fd Field) check(v any) error {
	switch v := v.(type) {
	case int:
		if v < 0 || fd.Numbers != nil && v != 0 && !slices.Contains(fd.Numbers, v) {
			return fmt.Errorf("%d is not %s", v, fd.Expect())
		}
	case time.Duration:
		if strings.HasSuffix(fd.Path, ".itl_target") && v%time.Millisecond != 0 {
			return fmt.Errorf("%s is not a number of whole milliseconds", v)
		}
	case string:
		if err := fd.form.check(v); err != nil {
			return err
		}
		if strings.HasSuffix(fd.Path, ".speculative") {
			if _, err := cluster.ParseSpeculative(v); err != nil {
				return errors.New(strings.TrimPrefix(err.Error(), "speculative: "))
			}
		}
	case []string:
		if slices.ContainsFunc(v, func(item string) bool { return strings.Contains(item, ",") }) {
			return fmt.Errorf("%q: items of a list have no commas", v)
		}
	}
	return nil
}

// keysBelow names what may stand directly in a section.
func keysBelow(section string) []string {
	if section == poolSection {
		return []string{"the names of pools"}
	}
	var out []string
	list, section := scope(section)
	for _, fd := range list {
		if fd.setting && !slices.Contains(out, poolSection) && section == "" {
			out = append(out, poolSection, attachedSection)
		}
		rest := fd.Path
		if section != "" {
			var ok bool
			if rest, ok = strings.CutPrefix(fd.Path, section+"."); !ok {
				continue
			}
		}
		name, _, _ := strings.Cut(rest, ".")
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// hintPath names the field that somebody may have meant by a whole path.
func hintPath(path string) string {
	section, name := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		section, name = path[:i], path[i+1:]
	}
	var all []string
	for _, fd := range fields() {
		all = append(all, fd.Path)
	}
	if near := config.Nearest(path, all); near != "" && hintRole(name, section) == "" {
		return "; did you mean " + near + "?"
	}
	return hint(name, section)
}

// hintRole says that workers of a role have no use for an option of engines, if that is why
// its section lacks it.
func hintRole(name, section string) string {
	role, ok := strings.CutSuffix(base(section), ".engine")
	if _, known := field("engine." + name); !ok || !isRole(role) || !known && !isSection("engine."+name) {
		return ""
	}
	return "; " + role + " workers have no such option: they compute only the embeddings of images"
}

// hint names the key that somebody may have meant: one of the section, or one of that
// name elsewhere.
func hint(name, section string) string {
	if without := hintRole(name, section); without != "" {
		return without
	}
	if near := config.Nearest(name, keysBelow(section)); near != "" {
		return "; did you mean " + near + "?"
	}
	for _, fd := range fields() {
		for _, former := range fd.Key.Former {
			if at, ok := strings.CutPrefix(former, section+"."); ok && config.Nearest(name, []string{at}) != "" {
				return "; did you mean " + strings.TrimPrefix(fd.Path, section+".") + "?"
			}
		}
		if strings.HasSuffix(fd.Path, "."+name) {
			return "; " + name + " belongs to " + strings.TrimSuffix(fd.Path, "."+name)
		}
	}
	return ""
}
