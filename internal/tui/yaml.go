package tui

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/tui/draw"
)

// yamlLines prints JSON in the layout of YAML, keys in their own order. Strings
// that YAML could read as something else are quoted.
func yamlLines(raw []byte) [][]draw.Span {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	y := yamlWriter{dec: d}
	y.value(0, nil)
	return y.out
}

type yamlWriter struct {
	dec *json.Decoder
	out [][]draw.Span
}

// value prints the next value; lead is what stands before it on its line.
func (y *yamlWriter) value(indent int, lead []draw.Span) {
	t, err := y.dec.Token()
	if err != nil {
		return
	}
	open, ok := t.(json.Delim)
	if !ok {
		y.line(lead, scalar(t))
		return
	}
	if !y.dec.More() {
		_, _ = y.dec.Token()
		y.line(lead, map[json.Delim]string{'{': "{}", '[': "[]"}[open])
		return
	}
	pad := strings.Repeat("  ", indent)
	if len(lead) > 0 && !isItem(lead) {
		y.out = append(y.out, lead)
		lead = nil
	}
	for y.dec.More() {
		head := []draw.Span{draw.Plain.Text(pad)}
		if isItem(lead) {
			head, lead = lead, nil // the first key shares the line of "- "
		}
		if open == '[' {
			y.value(indent+1, append(head, draw.Dim.Text("- ")))
			continue
		}
		k, err := y.dec.Token()
		if err != nil {
			return
		}
		name, _ := k.(string)
		y.value(indent+1, append(head, draw.KeyName.Text(name+":")))
	}
	_, _ = y.dec.Token()
}

func isItem(lead []draw.Span) bool { return len(lead) > 0 && lead[len(lead)-1].Text == "- " }

func (y *yamlWriter) line(lead []draw.Span, text string) {
	if len(lead) > 0 && !isItem(lead) {
		text = " " + text
	}
	y.out = append(y.out, append(lead, draw.Plain.Text(text)))
}

func scalar(t json.Token) string {
	switch v := t.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return v.String()
	case string:
		if needsQuotes(v) {
			return strconv.Quote(v)
		}
		return v
	}
	return ""
}

func needsQuotes(s string) bool {
	switch s {
	case "", "null", "true", "false", "yes", "no", "on", "off", "~":
		return true
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return true
	}
	return strings.ContainsAny(s[:1], " -?:,[]{}#&*!|>'\"%@`") || strings.HasSuffix(s, " ") ||
		strings.Contains(s, ": ") || strings.Contains(s, " #") || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
