package chat

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/jinja"
)

// Names of templates in a list. The first is the usual one; the second is used for
// requests with tools.
const (
	defaultTemplate = "default"
	toolTemplate    = "tool_use"
)

// loadTemplates finds and parses the chat templates. A separate template file overrides
// tokenizer_config.json, which overrides the older processor form. It also returns the
// texts of the templates.
func loadTemplates(files Files, cfg *tokenizerConfig) (map[string]*template, map[string]string, error) {
	sources := map[string]string{}
	file := TemplateFile
	switch raw := files[TemplateFile]; {
	case raw != nil:
		sources[defaultTemplate] = string(raw)
	case cfg.template != nil:
		file = TokenizerConfigFile
		if err := templateSources(cfg.template, file, sources); err != nil {
			return nil, nil, err
		}
	default:
		file = TemplateJSONFile
		d, err := readObject(files, file)
		if d == nil || err != nil {
			return nil, nil, err
		}
		v, _ := d.Get("chat_template")
		if err := templateSources(v, file, sources); err != nil {
			return nil, nil, err
		}
	}
	templates := map[string]*template{}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		label := file
		if name != defaultTemplate {
			label += ":" + name
		}
		t, err := jinja.Parse(label, sources[name])
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrFile, err)
		}
		parts := t.LoopsOver("content")
		templates[name] = &template{
			Template:   t,
			parts:      parts,
			onlyParts:  parts && !t.UsesTest("string", "iterable", "sequence", "mapping"),
			developers: t.HasString("developer"),
		}
	}
	return templates, sources, nil
}

// templateSources reads a template, or a list of {name, template}.
func templateSources(v jinja.Value, file string, to map[string]string) error {
	if s, ok := v.(string); ok {
		to[defaultTemplate] = s
		return nil
	}
	list, ok := v.(*jinja.List)
	if !ok {
		return fmt.Errorf("%w: %s: chat_template is not a string or a list of templates", ErrFile, file)
	}
	for i := range list.Len() {
		d, _ := list.At(i).(*jinja.Dict)
		if d == nil {
			d = jinja.NewDict()
		}
		name, _ := d.Get("name")
		source, _ := d.Get("template")
		n, ok1 := name.(string)
		s, ok2 := source.(string)
		if !ok1 || !ok2 {
			return fmt.Errorf("%w: %s: chat_template[%d] is not an object with name and template", ErrFile, file, i)
		}
		to[n] = s
	}
	return nil
}

// pick returns the template for a request. tools reports whether the request has tools.
func (p *Processor) pick(tools bool) (*template, error) {
	if t := p.templates[toolTemplate]; t != nil && tools {
		return t, nil
	}
	if t := p.templates[defaultTemplate]; t != nil {
		return t, nil
	}
	if len(p.templates) == 0 {
		return nil, fmt.Errorf("%w: the model has neither %s nor a chat_template in %s: put a %s beside its weights, or send plain prompts to the completions endpoint",
			ErrNoTemplate, TemplateFile, TokenizerConfigFile, TemplateFile)
	}
	names := slices.Sorted(maps.Keys(p.templates))
	return nil, fmt.Errorf("%w: the model has the templates %s, but none named %s", ErrNoTemplate, strings.Join(names, ", "), defaultTemplate)
}
