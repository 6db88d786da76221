package chat

import (
	"maps"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/chat/parse"
)

// formats are how a model writes what is more than text, as far as its templates
// tell.
type formats struct {
	tool, reasoning string // names of package parse
	tools           bool   // the template shows tools to the model
}

// detectFormats reads the texts of the templates.
func (p *Processor) detectFormats(sources map[string]string) {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		all = append(all, sources[name])
	}
	text := strings.Join(all, "\n")
	p.formats.tool, p.formats.reasoning = parse.Detect(text)
	p.formats.tools = strings.Contains(text, "tools")
}

// Formats returns the names of the formats of package parse that the model's chat
// template teaches, empty where it shows none.
func (p *Processor) Formats() (tool, reasoning string) { return p.formats.tool, p.formats.reasoning }

// TakesTools reports whether the model's chat template shows tools to the model.
func (p *Processor) TakesTools() bool { return p.formats.tools }

// SpecialTokens returns the ids of those texts that are special tokens of the
// model, for [Detokenizer.Keep].
func (p *Processor) SpecialTokens(texts []string) []uint32 {
	var ids []uint32
	for _, text := range texts {
		if id, ok := p.tok.TokenID(text); ok && p.tok.IsSpecial(id) {
			ids = append(ids, id)
		}
	}
	return ids
}
