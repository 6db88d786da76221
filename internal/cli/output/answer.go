package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// Answer is the result of a command, in all output forms.
type Answer struct {
	Data any // for JSON and YAML
	// File, if set, is what YAML has instead: a file that dynctl reads.
	File  func() ([]byte, error)
	Table func(wide bool) *Table
	Names []string
	// Text is written where there is no table.
	Text string
}

// writeYAML writes the YAML form: a file, or what JSON holds.
func (a Answer) writeYAML(w io.Writer) error {
	if a.File == nil {
		return WriteYAML(w, a.Data)
	}
	text, err := a.File()
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// WriteJSON writes one document, on one line or indented. Numbers that JavaScript would round
// stand there as text, too: beside instance_id is instance_id_hex.
func WriteJSON(w io.Writer, v any, indented bool) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	doc := withHex(b.Bytes())
	if indented {
		b.Reset()
		if err := json.Indent(&b, doc, "", "  "); err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		doc = b.Bytes()
	}
	if _, err := w.Write(doc); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// WriteYAML writes what JSON would hold, keys and their order included.
func WriteYAML(w io.Writer, v any) error {
	var b bytes.Buffer
	if err := WriteJSON(&b, v, false); err != nil {
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
