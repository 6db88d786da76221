package chat

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/grammar"
	"github.com/dynctl/dynctl/internal/jinja"
	"github.com/dynctl/dynctl/internal/tokenizer"
)

// Files holds the small files of a model by their names in its folder, as its card lists them.
type Files map[string][]byte

// Names of the files that Load reads. Only the tokenizer is required.
const (
	TokenizerFile       = "tokenizer.json"
	TokenizerConfigFile = "tokenizer_config.json"
	SpecialTokensFile   = "special_tokens_map.json"
	TemplateFile        = "chat_template.jinja"
	TemplateJSONFile    = "chat_template.json"
	// TemplateFolder holds more templates, each in a file that has its name and ends like
	// TemplateFile.
	TemplateFolder       = "additional_chat_templates/"
	GenerationConfigFile = "generation_config.json"
	ModelConfigFile      = "config.json"
)

// Processor holds a model's tokenizer, chat templates and defaults.
type Processor struct {
	tok       *tokenizer.Tokenizer
	templates map[string]*template // by name; "default" is the usual one
	special   []specialToken
	formats   formats
	eos       []uint32
	context   int
	defaults  GenerationDefaults
	// before and after enclose the text of a plain prompt, where the configuration
	// overrides the tokenizer's own post-processor.
	before, after []uint32
	ownSpecials   bool
	now           func() time.Time
	// grammars compiles constraints. It is made at first use, because it reads every
	// token.
	grammars func() (*grammar.Compiler, error)
}

// Load makes a processor from a model's files. Errors name the file, and the line for a
// template that does not parse.
func Load(files Files) (*Processor, error) {
	raw := files[TokenizerFile]
	if raw == nil {
		return nil, fmt.Errorf("%w: %s is missing: convert the model's tokenizer to that format", ErrFile, TokenizerFile)
	}
	tok, err := tokenizer.Load(raw)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", TokenizerFile, err)
	}
	p := &Processor{tok: tok, now: time.Now}
	cfg, err := readTokenizerConfig(files)
	if err != nil {
		return nil, err
	}
	p.special = cfg.special
	if err := p.addedTokens(cfg); err != nil {
		return nil, err
	}
	var sources map[string]string
	if p.templates, sources, err = loadTemplates(files, cfg); err != nil {
		return nil, err
	}
	for _, t := range p.templates {
		p.probe(t)
	}
	p.detectFormats(sources)
	gen, err := readGenerationConfig(files)
	if err != nil {
		return nil, err
	}
	p.defaults = gen.defaults
	model, err := readModelConfig(files)
	if err != nil {
		return nil, err
	}
	p.eos = gen.eos
	if p.eos == nil {
		p.eos = model.eos
	}
	// The end of a turn can be missing from generation_config.json, so the tokenizer's
	// end token ends a text in any case.
	if id, ok := p.tokenID("eos_token"); ok && !slices.Contains(p.eos, id) {
		p.eos = append(p.eos, id)
	}
	if p.context = model.context; p.context == 0 {
		p.context = cfg.maxLength
	}
	p.grammars = sync.OnceValues(p.newGrammars)
	return p, nil
}

// addedTokens determines the tokens around a plain prompt.
func (p *Processor) addedTokens(cfg *tokenizerConfig) error {
	if cfg.addBOS == nil && cfg.addEOS == nil || !cfg.llamaClass() {
		return nil
	}
	p.ownSpecials = true
	for _, add := range []struct {
		want  bool
		token string
		to    *[]uint32
	}{
		{cfg.addBOS == nil || *cfg.addBOS, "bos_token", &p.before},
		{cfg.addEOS != nil && *cfg.addEOS, "eos_token", &p.after},
	} {
		if !add.want {
			continue
		}
		id, ok := p.tokenID(add.token)
		if !ok {
			return fmt.Errorf("%w: %s: add_%s is set, but the tokenizer has no %s", ErrFile, TokenizerConfigFile, add.token, add.token)
		}
		*add.to = []uint32{id}
	}
	return nil
}

// tokenID returns the id of the special token with a role such as eos_token.
func (p *Processor) tokenID(role string) (uint32, bool) {
	for _, s := range p.special {
		if s.name == role {
			if text, ok := s.value.(string); ok {
				return p.tok.TokenID(text)
			}
		}
	}
	return 0, false
}

// EOS returns all ids that end a text.
func (p *Processor) EOS() []uint32 { return slices.Clone(p.eos) }

// ContextHint returns the longest sequence that the model was trained for, in tokens, or
// 0 if its files do not say.
func (p *Processor) ContextHint() int { return p.context }

// Defaults returns the sampling parameters that the model's authors recommend.
func (p *Processor) Defaults() GenerationDefaults { return p.defaults }

// VocabSize returns the tokenizer's largest id plus one. The model may have more rows.
func (p *Processor) VocabSize() int { return p.tok.VocabSize() }

// IsSpecial reports whether an id is a special token, which produces no text.
func (p *Processor) IsSpecial(id uint32) bool { return p.tok.IsSpecial(id) }

// TokenID returns the id of a token, spelled as in the tokenizer's file.
func (p *Processor) TokenID(content string) (uint32, bool) { return p.tok.TokenID(content) }

// EncodeChat returns the ids of a rendered conversation. It adds no first token, because
// templates write their own. It recognizes special tokens in the text.
func (p *Processor) EncodeChat(prompt string) []uint32 { return p.tok.Encode(prompt, false) }

// EncodePrompt returns the ids of a plain prompt, enclosed in the special tokens that the
// model expects.
func (p *Processor) EncodePrompt(text string) []uint32 {
	if !p.ownSpecials {
		return p.tok.Encode(text, true)
	}
	return append(p.tok.EncodeTo(slices.Clone(p.before), text, false), p.after...)
}

// Decode returns the text of ids, without special tokens.
func (p *Processor) Decode(ids []uint32) string { return p.tok.Decode(ids, true) }

// HasTemplate reports whether RenderChat works for requests without tools.
func (p *Processor) HasTemplate() bool { return p.templates[defaultTemplate] != nil }

// template is a parsed chat template, and the form of messages that its text expects.
type template struct {
	*jinja.Template
	parts      bool // shows the parts of a message's content
	onlyParts  bool // and does not accept a string in their place
	developers bool // knows the role developer
	noNull     bool // fails or writes "None" where content is null
}
