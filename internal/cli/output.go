package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// answer is what a command has found out, in all forms.
type answer struct {
	data any // for JSON and YAML
	// file, if set, is what YAML has instead: a file that dynctl reads.
	file  func() ([]byte, error)
	table func(wide bool) *table
	names []string
	// text is written where there is no table.
	text string
}

// answer writes an answer to standard output in the form that was asked for.
func (inv *invocation) answer(a answer) error {
	w := inv.stdout()
	switch {
	case inv.quiet, inv.format == "name":
		for _, n := range a.names {
			if _, err := fmt.Fprintln(w, n); err != nil {
				return err
			}
		}
		return nil
	case inv.format == "json":
		return writeJSON(w, a.data, true)
	case inv.format == "yaml":
		return a.writeYAML(w)
	case a.table == nil:
		_, err := io.WriteString(w, a.text)
		return err
	}
	return a.table(inv.format == "wide").write(w, inv.tableStyle())
}

// writeYAML writes the YAML form: a file, or what JSON holds.
func (a answer) writeYAML(w io.Writer) error {
	if a.file == nil {
		return writeYAML(w, a.data)
	}
	text, err := a.file()
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// prose reports whether answers are sentences for people rather than documents.
func (inv *invocation) prose() bool {
	return !inv.quiet && (inv.format == "table" || inv.format == "wide")
}

// writeJSON writes one document, on one line or indented.
func writeJSON(w io.Writer, v any, indented bool) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if indented {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// writeYAML writes what JSON would hold, keys and their order included.
func writeYAML(w io.Writer, v any) error {
	var b bytes.Buffer
	if err := writeJSON(&b, v, false); err != nil {
		return err
	}
	var doc yaml.Node // JSON is YAML in flow style
	if err := yaml.Unmarshal(b.Bytes(), &doc); err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	blockStyle(&doc)
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	return enc.Close()
}

// blockStyle lets the encoder choose how nodes are written.
func blockStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		blockStyle(c)
	}
}
