package config

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// WriteExample writes the commented example file: every key with its sentence,
// its variable and its default. A line without its "#" sets the key; read as it
// is, the file sets nothing.
func (t Table) WriteExample(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Settings of %s. Remove the \"#\" in front of a key to set it.\n", t.Program)
	fmt.Fprintf(&b, "# A flag wins over an environment variable, that over this file, and that over the\n")
	fmt.Fprintf(&b, "# default shown here. Durations and sizes need a unit: 30s, 5m, 512MiB, 8GiB.\n")
	for _, s := range t.Sections {
		indent := ""
		fmt.Fprintf(&b, "\n# %s.\n", s.Title)
		if s.Name != "" {
			fmt.Fprintf(&b, "%s:\n", s.Name)
			indent = "  "
		}
		first := s.Name != "" // keys stand apart, but the first one right under its section
		for _, k := range t.Keys {
			if k.Section() != s.Name {
				continue
			}
			if !first {
				b.WriteByte('\n')
			}
			first = false
			for _, line := range wrap(sentence(k), 92-len(indent)) {
				fmt.Fprintf(&b, "%s# %s\n", indent, line)
			}
			fmt.Fprintf(&b, "%s# Environment: %s\n", indent, strings.Join(t.envNames(k), ", "))
			fmt.Fprintf(&b, "%s#%s: %s\n", indent, lastPart(k.Name), yamlDefault(k))
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (t Table) envNames(k Key) []string {
	names := []string{t.Env(k)}
	for _, a := range k.Aliases {
		names = append(names, a.Name)
	}
	return names
}

func sentence(k Key) string {
	s := strings.ToUpper(k.Help[:1]) + k.Help[1:]
	if strings.HasPrefix(k.Help, "etcd") {
		s = k.Help // a name that is not capitalized
	}
	if len(k.Choices) > 0 {
		s += " (" + strings.Join(k.Choices, ", ") + ")"
	}
	return s + "."
}

// yamlDefault writes the default so that the line is valid YAML.
func yamlDefault(k Key) string {
	switch k.Kind {
	case KindList:
		return "[" + strings.ReplaceAll(k.DefaultString(), ",", ", ") + "]"
	case KindString, KindPath, KindSecret:
		if s := k.DefaultString(); s == "" || strings.Contains(s, ":") {
			return fmt.Sprintf("%q", s)
		}
	}
	return k.DefaultString()
}

// wrap breaks text into lines of at most width bytes, at spaces.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
