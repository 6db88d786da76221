package chat

import (
	"maps"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/chat/parse"
)

// formats names the formats in which a model writes tool calls and reasoning, as far as
// its templates show them.
type formats struct {
	tool, reasoning string // names of package parse
	tools           bool   // the template shows tools to the model
}

// detectFormats detects formats in the texts of the templates.
func (p *Processor) detectFormats(sources map[string]string) {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		all = append(all, sources[name])
	}
	text := strings.Join(all, "\n")
	p.formats.tool, p.formats.reasoning = parse.Detect(text)
	p.formats.tools = strings.Contains(text, "tools")
}

// Formats returns the names, in package parse, of the formats that the model's chat
// template teaches; empty where it teaches none.
func (p *Processor) Formats() (tool, reasoning string) { return p.formats.tool, p.formats.reasoning }

// TakesTools reports whether the model's chat template shows tools to the model.
func (p *Processor) TakesTools() bool { return p.formats.tools }

// SpecialTokens returns the ids of those texts that are special tokens of the model. Pass
// them to [Detokenizer.Keep].
func (p *Processor) SpecialTokens(texts []string) []uint32 {
	var ids []uint32
	for _, text := range texts {
		if id, ok := p.tok.TokenID(text); ok && p.tok.IsSpecial(id) {
			ids = append(ids, id)
		}
	}
	return ids
}
