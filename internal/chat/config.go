package chat

import (
	"fmt"
	"math"
	"strings"

	"github.com/dynctl/dynctl/internal/jinja"
	"github.com/dynctl/dynctl/internal/jsonscan"
)

// tokenizerConfig is the content of tokenizer_config.json.
type tokenizerConfig struct {
	class          string
	addBOS, addEOS *bool
	maxLength      int // tokens, 0 if unknown
	special        []specialToken
	template       jinja.Value // a string, a list, or nil
}

// specialToken is a variable of templates. bos_token and the like are strings;
// additional_special_tokens is a list.
type specialToken struct {
	name  string
	value jinja.Value
}

// llamaClass reports whether add_bos_token and add_eos_token override the tokenizer's
// post-processor. Other classes ignore these settings.
func (c *tokenizerConfig) llamaClass() bool {
	for _, prefix := range []string{"Llama", "CodeLlama", "Gemma", "Cohere"} {
		if strings.HasPrefix(c.class, prefix) {
			return true
		}
	}
	return false
}

// readObject reads a file that holds a JSON object. It returns nil if there is no file.
func readObject(files Files, name string) (*jinja.Dict, error) {
	raw := files[name]
	if raw == nil {
		return nil, nil
	}
	v, err := jinja.FromJSON(jsonscan.FromPython(raw))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFile, name, err)
	}
	d, ok := v.(*jinja.Dict)
	if !ok {
		return nil, fmt.Errorf("%w: %s does not hold an object", ErrFile, name)
	}
	return d, nil
}

func readTokenizerConfig(files Files) (*tokenizerConfig, error) {
	c := &tokenizerConfig{}
	tokens := map[string]jinja.Value{}
	// tokenizer_config.json overrides special_tokens_map.json.
	for _, name := range []string{SpecialTokensFile, TokenizerConfigFile} {
		d, err := readObject(files, name)
		if err != nil {
			return nil, err
		}
		if d == nil {
			continue
		}
		if err := c.specialTokens(d, name, tokens); err != nil {
			return nil, err
		}
		if name == TokenizerConfigFile {
			if err := c.settings(d); err != nil {
				return nil, err
			}
		}
	}
	for i := range c.special {
		c.special[i].value = tokens[c.special[i].name]
	}
	return c, nil
}

func (c *tokenizerConfig) settings(d *jinja.Dict) error {
	fail := func(field, want string) error {
		return fmt.Errorf("%w: %s: %s is not %s", ErrFile, TokenizerConfigFile, field, want)
	}
	if v, ok := d.Get("tokenizer_class"); ok && v != nil {
		if c.class, ok = v.(string); !ok {
			return fail("tokenizer_class", "a string")
		}
	}
	for name, to := range map[string]**bool{"add_bos_token": &c.addBOS, "add_eos_token": &c.addEOS} {
		v, _ := d.Get(name)
		if v == nil {
			continue
		}
		b, ok := v.(bool)
		if !ok {
			return fail(name, "true or false")
		}
		*to = &b
	}
	// "Unlimited" is written as a number of 30 digits.
	if v, _ := d.Get("model_max_length"); v != nil {
		if n, ok := v.(int64); ok && n > 0 && n <= math.MaxInt32 {
			c.maxLength = int(n)
		}
	}
	v, _ := d.Get("chat_template")
	switch v.(type) {
	case nil, string, *jinja.List:
	default:
		return fail("chat_template", "a string or a list of templates")
	}
	c.template = v
	return nil
}

// specialTokens collects the special tokens of a file into tokens and adds new
// names to the configuration. A token is a string or an object with its content.
func (c *tokenizerConfig) specialTokens(d *jinja.Dict, file string, tokens map[string]jinja.Value) error {
	set := func(name string, v jinja.Value) {
		if _, ok := tokens[name]; !ok {
			c.special = append(c.special, specialToken{name: name})
		}
		tokens[name] = v
	}
	for i := range d.Len() {
		name, v := d.Entry(i)
		switch {
		case v == nil:
		case name == "additional_special_tokens" || name == "extra_special_tokens":
			switch v := v.(type) {
			case *jinja.List:
				var list []jinja.Value
				for k := range v.Len() {
					text, ok := tokenText(v.At(k))
					if !ok {
						return fmt.Errorf("%w: %s: %s[%d] is not a token", ErrFile, file, name, k)
					}
					list = append(list, text)
				}
				set(name, jinja.NewList(list...))
			case *jinja.Dict: // tokens with names of their own
				for k := range v.Len() {
					own, token := v.Entry(k)
					text, ok := tokenText(token)
					if !ok {
						return fmt.Errorf("%w: %s: %s.%s is not a token", ErrFile, file, name, own)
					}
					set(own, text)
				}
			}
		case strings.HasSuffix(name, "_token") && !strings.HasPrefix(name, "add_"):
			text, ok := tokenText(v)
			if ok {
				set(name, text)
			} else if commonTokens[name] { // others may be settings
				return fmt.Errorf("%w: %s: %s is neither a string nor an object with content", ErrFile, file, name)
			}
		}
	}
	return nil
}

// commonTokens are the roles of tokens that every tokenizer class has.
var commonTokens = map[string]bool{
	"bos_token": true, "eos_token": true, "unk_token": true, "pad_token": true,
	"sep_token": true, "cls_token": true, "mask_token": true,
}

func tokenText(v jinja.Value) (string, bool) {
	if d, ok := v.(*jinja.Dict); ok {
		v, _ = d.Get("content")
	}
	s, ok := v.(string)
	return s, ok
}
