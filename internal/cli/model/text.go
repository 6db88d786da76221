package model

import (
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/inspect"
)

// modelText prints a report for people: a line for each subject, and a table of
// memory. Problems are left to the error that follows.
func modelText(r inspect.Report, p term.Palette) string {
	var b strings.Builder
	line := func(subject, format string, args ...any) {
		fmt.Fprintf(&b, "%s  %s\n", p.Dim(term.PadRight(subject, 12)), term.Clean(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(&b, "%s\n", p.Bold(term.Clean(r.Path)))
	if r.Format != "" {
		line("format", "%s, %s", r.Format, human.Bytes(r.Weights.FileBytes))
	}
	if r.Mmproj != "" {
		line("mmproj", "%s", r.Mmproj)
	}
	if r.Family != "" {
		line("family", "%s (%s)", r.Family, r.Architecture)
		line("shape", "%s, hidden %s, %s of %d (%d KV), FFN %s", human.Plural(r.Shape.Layers, "layer"), human.Commas(r.Shape.Hidden),
			human.Plural(r.Shape.Heads, "head"), r.Shape.HeadDim, r.Shape.KVHeads, human.Commas(r.Shape.FFN))
		line("rope", "%s", r.Shape.RoPE)
	}
	if v := r.Vision; v != nil {
		takes := fmt.Sprintf("%s of a view of %d pixels in patches of %d", human.Plural(v.Tokens, "token"), v.ImageSize, v.PatchSize)
		if v.Square > 0 {
			takes = fmt.Sprintf("images of any size, a token for %d × %d pixels", v.Square, v.Square)
		}
		line("vision", "%s: %s, hidden %s, %s, FFN %s; %s", v.Tower, human.Plural(v.Layers, "layer"), human.Commas(v.Hidden),
			human.Plural(v.Heads, "head"), human.Commas(v.FFN), takes)
	}
	if r.Parameters.Total > 0 {
		line("parameters", "%s: %s", count(r.Parameters.Total), parameterText(r))
	}
	if len(r.DTypes) > 0 {
		line("weights", "%s", dtypeText(r))
	}
	if r.Context > 0 {
		line("context", "%s tokens", human.Commas(r.Context))
		line("vocabulary", "%s rows, %s tokens", human.Commas(r.Vocabulary.Rows), human.Commas(r.Vocabulary.Tokens))
		line("KV", "%s per token (%s)", human.Bytes(r.KV.BytesPerToken), r.KV.DType)
	}
	if r.Tokenizer.Kind != "" {
		line("tokenizer", "%s%s", r.Tokenizer.Kind, specialText(r))
	}
	if len(r.Files) > 0 {
		line("chat", "%s", chatText(r.Chat))
	}
	if r.Digest != "" {
		line("digest", "%.16s", r.Digest)
	}
	for _, w := range r.Warnings {
		line("warning", "%s", w)
	}
	if len(r.Memory) > 0 {
		fmt.Fprintf(&b, "\n%s\n", p.Bold(fmt.Sprintf("%-8s  %12s  %12s  %12s", "workers", "weights", "KV", "together")))
		for _, m := range r.Memory {
			fmt.Fprintf(&b, "%-8d  %12s  %12s  %12s\n", m.Workers, human.Bytes(m.Weights), human.Bytes(m.KV), human.Bytes(m.Total))
		}
		b.WriteString("One node; each worker has KV blocks for one full context.\n")
	}
	return b.String()
}

func parameterText(r inspect.Report) string {
	var parts []string
	for _, part := range []struct {
		name string
		n    int64
	}{
		{"embedding", r.Parameters.Embedding}, {"attention", r.Parameters.Attention}, {"MLP", r.Parameters.MLP}, {"experts", r.Parameters.Experts},
		{"norms", r.Parameters.Norms}, {"head", r.Parameters.Head}, {"vision", r.Parameters.Vision},
	} {
		if part.n > 0 {
			parts = append(parts, part.name+" "+count(part.n))
		}
	}
	if r.Shape.TiedHead {
		parts = append(parts, "head tied")
	}
	if r.Parameters.Unused > 0 {
		parts = append(parts, count(r.Parameters.Unused)+" more unused")
	}
	return strings.Join(parts, ", ")
}

func dtypeText(r inspect.Report) string {
	var parts []string
	for _, d := range r.DTypes {
		parts = append(parts, fmt.Sprintf("%s %s in %s", d.Name, human.Bytes(d.Bytes), human.Plural(d.Tensors, "tensor")))
	}
	if r.Weights.CopiedBytes > 0 {
		parts = append(parts, human.Bytes(r.Weights.CopiedBytes)+" copied into memory")
	}
	return strings.Join(parts, ", ")
}

func specialText(r inspect.Report) string {
	var parts []string
	for _, s := range r.Tokenizer.Special {
		text := s.Role[:3] + " " + s.Token
		if s.Known {
			text += fmt.Sprintf(" (%d)", s.ID)
		}
		parts = append(parts, text)
	}
	if n := len(r.Tokenizer.EOS); n > 0 {
		parts = append(parts, fmt.Sprintf("ends %v", r.Tokenizer.EOS))
	}
	if len(parts) == 0 {
		return ""
	}
	return "; " + strings.Join(parts, ", ")
}

func chatText(c inspect.Chat) string {
	if !c.Template {
		return "no template"
	}
	var yes, no []string
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"system role", c.System}, {"several turns", c.Turns}, {"generation prompt", c.GenerationPrompt != ""},
		{"tools", c.Tools}, {"tool results", c.ToolResults},
	} {
		if f.has {
			yes = append(yes, f.name)
		} else {
			no = append(no, f.name)
		}
	}
	for _, t := range c.Toggles {
		yes = append(yes, "switch "+t)
	}
	text := strings.Join(yes, ", ")
	if len(no) > 0 {
		text += "; no " + strings.Join(no, ", no ")
	}
	return strings.TrimPrefix(text, "; ")
}

// count prints a number of parameters: 596.0M.
func count(n int64) string {
	for _, u := range []struct {
		unit  string
		Bytes float64
	}{{"T", 1e12}, {"B", 1e9}, {"M", 1e6}, {"k", 1e3}} {
		if f := float64(n) / u.Bytes; f >= 1 {
			return fmt.Sprintf("%.1f%s", f, u.unit)
		}
	}
	return fmt.Sprint(n)
}

// cleaned makes texts safe for a terminal.
func cleaned(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = term.Clean(t)
	}
	return out
}
