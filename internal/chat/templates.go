package chat

import (
	"context"
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

// loadTemplates finds and parses the chat templates. Separate template files override
// tokenizer_config.json, which overrides the older processor form. It also returns the
// texts of the templates.
func loadTemplates(files Files, cfg *tokenizerConfig) (map[string]*template, map[string]string, error) {
	sources := templateFiles(files)
	file := TemplateFile
	switch {
	case len(sources) > 0:
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
		switch {
		case name == defaultTemplate:
		case file == TemplateFile:
			label = TemplateFolder + name + templateExt
		default:
			label += ":" + name
		}
		t, err := jinja.Parse(label, sources[name])
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrFile, err)
		}
		templates[name] = &template{Template: t, developers: t.HasString("developer")}
	}
	return templates, sources, nil
}

// templateExt ends the names of template files.
const templateExt = ".jinja"

// templateFiles returns the templates that have files of their own, by name.
func templateFiles(files Files) map[string]string {
	sources := map[string]string{}
	if raw := files[TemplateFile]; raw != nil {
		sources[defaultTemplate] = string(raw)
	}
	for file, raw := range files {
		if name, ok := strings.CutPrefix(file, TemplateFolder); ok {
			if name, ok = strings.CutSuffix(name, templateExt); ok && name != defaultTemplate {
				sources[name] = string(raw)
			}
		}
	}
	return sources
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

// probe finds out what content a template takes by what it makes of a text, of a list of
// two, and of none: many a template reads lists without looping over them. A template that
// shows neither text nor list gets texts.
func (p *Processor) probe(t *template) {
	render := func(messages ...jinja.Value) (string, error) {
		values := MaxValues
		vars, err := p.variables(nil, nil, true, &values)
		if err != nil {
			return "", err
		}
		vars.Set("messages", jinja.NewList(messages...))
		return t.Render(context.Background(), vars, jinja.Options{Now: p.now})
	}
	shows := func(content jinja.Value, all ...string) bool {
		text, err := render(message("user", content))
		if err != nil {
			text, err = render(message("system", "x"), message("user", content))
		}
		missing := func(part string) bool { return !strings.Contains(text, part) }
		return err == nil && !slices.ContainsFunc(all, missing) && missing("'type'") && missing(`"type"`) // not written as they are
	}
	const one, two = "content-1", "content-2"
	t.parts = shows(jinja.NewList(textPart(one), textPart(two)), one, two)
	t.onlyParts = t.parts && !shows(one, one)

	function, call := jinja.NewDict(), jinja.NewDict()
	function.Set("name", "f")
	function.Set("arguments", jinja.NewDict())
	call.Set("type", "function")
	call.Set("function", function)
	fails := func(content jinja.Value, calls bool) bool {
		m := message("assistant", content)
		if calls {
			m.Set("tool_calls", jinja.NewList(call))
		}
		text, err := render(message("user", "x"), m)
		return err != nil || strings.Contains(text, "None")
	}
	for _, calls := range []bool{false, true} {
		t.noNull = t.noNull || fails(nil, calls) && !fails("", calls)
	}
}

func message(role string, content jinja.Value) *jinja.Dict {
	m := jinja.NewDict()
	m.Set("role", role)
	m.Set("content", content)
	return m
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
