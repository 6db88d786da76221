package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/jinja"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/tokenizer"
)

// text reads the tokenizer and the chat template as frontends do.
func (r *Report) text(ctx context.Context, m *model.Model) {
	files := chat.Files{}
	for _, f := range m.Files() {
		files[f.Name] = f.Data
	}
	if len(files) == 0 {
		return // nothing to be read; that is already told
	}
	r.Tokenizer.Kind = kind(files[chat.TokenizerFile])
	p, err := chat.Load(files)
	if err != nil {
		r.problem(err)
		p = r.behindTokenizer(files)
	} else {
		r.special(p, files[chat.TokenizerConfigFile])
		if r.Vocabulary.Tokens == 0 {
			r.Vocabulary.Tokens = p.VocabSize()
		}
		if len(p.EOS()) == 0 {
			r.warn("no end-of-sequence token: answers run to their limit of tokens")
		}
		r.Tokenizer.EOS = append([]uint32{}, p.EOS()...)
		slices.Sort(r.Tokenizer.EOS)
	}
	if p != nil {
		r.template(ctx, p)
	}
}

// standIn is a tokenizer that knows nothing.
const standIn = `{"model":{"type":"WordLevel","vocab":{"?":0},"unk_token":"?"}}`

// behindTokenizer looks at the templates of files whose tokenizer cannot be read. It
// is nil if the tokenizer was not at fault.
func (r *Report) behindTokenizer(files chat.Files) *chat.Processor {
	if raw := files[chat.TokenizerFile]; raw != nil {
		if _, err := tokenizer.Load(raw); err == nil {
			return nil
		}
	}
	others := chat.Files{}
	for name, data := range files {
		others[name] = data
	}
	others[chat.TokenizerFile] = []byte(standIn)
	p, err := chat.Load(others)
	// Other errors are about tokens, which this tokenizer does not have.
	if syntax := (*jinja.SyntaxError)(nil); errors.As(err, &syntax) {
		r.problem(err)
	}
	if err != nil {
		return nil
	}
	return p
}

// kind tells the kinds of tokenizer apart.
func kind(raw []byte) string {
	var file struct {
		PreTokenizer json.RawMessage `json:"pre_tokenizer"`
		Model        struct {
			Type         string
			ByteFallback bool `json:"byte_fallback"`
			Merges       json.RawMessage
		}
	}
	if json.Unmarshal(raw, &file) != nil {
		return ""
	}
	k := file.Model.Type
	switch {
	case k == "" && len(file.Model.Merges) > 0:
		k = "BPE"
	case k == "":
		return ""
	}
	switch {
	case k == "BPE" && bytes.Contains(file.PreTokenizer, []byte(`"ByteLevel"`)):
		return "byte-level BPE"
	case file.Model.ByteFallback:
		return k + " with byte fallback"
	}
	return k
}

// special lists the tokens with a role.
func (r *Report) special(p *chat.Processor, config []byte) {
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(config, &fields) != nil {
		return // the processor has read it, so it is missing
	}
	for _, role := range []string{"bos_token", "eos_token", "pad_token", "unk_token"} {
		var text string
		var object struct{ Content string }
		if json.Unmarshal(fields[role], &text) != nil && json.Unmarshal(fields[role], &object) == nil {
			text = object.Content
		}
		if text == "" {
			continue
		}
		id, ok := p.TokenID(text)
		r.Tokenizer.Special = append(r.Tokenizer.Special, Special{role, text, id, ok})
		if !ok {
			r.warn("%s %q is not a token of the tokenizer", role, text)
		}
	}
}
