package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// piece is a part of the text on its way to the model. first says it begins
// where the original text begins.
type piece struct {
	s     string
	first bool
}

// preTokenizer cuts a piece into smaller ones, which it hands to
// e.emit(…, level+1). Empty pieces are dropped there.
type preTokenizer interface {
	split(e *encoder, p piece, level int)
}

// newPreTokenizers compiles the file's pre-tokenizer into the list of its steps.
func newPreTokenizers(raw json.RawMessage, depth int) ([]preTokenizer, error) {
	typ, err := componentType(raw, depth)
	if err != nil || typ == "" {
		return nil, err
	}
	ct := classes()
	switch typ {
	case "Sequence":
		var j struct{ Pretokenizers []json.RawMessage }
		if err := unmarshal(raw, &j); err != nil {
			return nil, err
		}
		var all []preTokenizer
		for i, r := range j.Pretokenizers {
			steps, err := newPreTokenizers(r, depth+1)
			if err != nil {
				return nil, fmt.Errorf("item %d: %w", i, err)
			}
			all = append(all, steps...)
		}
		return all, nil
	case "Split":
		step, err := newSplit(raw)
		return []preTokenizer{step}, err
	case "ByteLevel":
		j := struct {
			AddPrefixSpace bool `json:"add_prefix_space"`
			UseRegex       bool `json:"use_regex"`
		}{UseRegex: true}
		if err := unmarshal(raw, &j); err != nil {
			return nil, err
		}
		return []preTokenizer{&byteLevelStep{prefixSpace: j.AddPrefixSpace, useRegex: j.UseRegex, words: gpt2Scanner{ct}}}, nil
	case "Metaspace":
		m, err := newMetaspace(raw)
		return []preTokenizer{m}, err
	case "Digits":
		var j struct {
			IndividualDigits bool `json:"individual_digits"`
		}
		if err := unmarshal(raw, &j); err != nil {
			return nil, err
		}
		behavior := contiguous
		if j.IndividualDigits {
			behavior = isolated
		}
		return []preTokenizer{&splitStep{finder: classFinder{ct, clNumber}, behavior: behavior}}, nil
	case "Punctuation":
		j := struct{ Behavior string }{"Isolated"}
		if err := unmarshal(raw, &j); err != nil {
			return nil, err
		}
		b, err := parseBehavior(j.Behavior)
		return []preTokenizer{&splitStep{finder: classFinder{ct, clPunct | clASCIIPunct}, behavior: b}}, err
	case "Whitespace":
		return []preTokenizer{whitespaceStep{ct}}, nil
	case "WhitespaceSplit":
		return []preTokenizer{&splitStep{finder: classFinder{ct, clSpace}, behavior: removed}}, nil
	case "BertPreTokenizer":
		return []preTokenizer{
			&splitStep{finder: classFinder{ct, clSpace}, behavior: removed},
			&splitStep{finder: classFinder{ct, clPunct | clASCIIPunct}, behavior: isolated},
		}, nil
	case "CharDelimiterSplit":
		var j struct{ Delimiter string }
		if err := unmarshal(raw, &j); err != nil {
			return nil, err
		}
		if utf8.RuneCountInString(j.Delimiter) != 1 {
			return nil, fmt.Errorf("%w: delimiter %q is not one character", ErrMalformed, j.Delimiter)
		}
		return []preTokenizer{&splitStep{finder: literalFinder(j.Delimiter), behavior: removed}}, nil
	}
	return nil, fmt.Errorf("%w: pre-tokenizer type %q", ErrUnknownComponent, typ)
}

// byteLevelStep optionally prepends a space, cuts with GPT-2's pattern, and
// spells every byte with the byte alphabet, unless the model takes raw bytes.
type byteLevelStep struct {
	prefixSpace, useRegex bool
	raw                   bool // the model maps bytes itself
	words                 gpt2Scanner
}

func (b *byteLevelStep) split(e *encoder, p piece, level int) {
	if b.prefixSpace && !hasSpacePrefix(p.s) {
		p.s = " " + p.s
	}
	if !b.useRegex {
		e.emit(b.mapped(p), level+1)
		return
	}
	for i := 0; i < len(p.s) && !e.over; {
		end := b.words.matchAt(p.s, i)
		e.emit(b.mapped(piece{p.s[i:end], p.first && i == 0}), level+1)
		i = end
	}
}

func (b *byteLevelStep) mapped(p piece) piece {
	if !b.raw {
		p.s = toAlphabet(p.s)
	}
	return p
}

// whitespaceStep keeps runs of word characters and runs of other visible ones.
type whitespaceStep struct{ ct *classTable }

func (w whitespaceStep) split(e *encoder, p piece, level int) {
	for i := 0; i < len(p.s) && !e.over; {
		c, n := w.ct.at(p.s, i)
		end := i + n
		switch {
		case c&clWord != 0:
			end = w.ct.run(p.s, end, clWord)
		case c&clSpace == 0:
			end = w.ct.runOutside(p.s, end, clWord|clSpace)
		default:
			i = end
			continue
		}
		e.emit(piece{p.s[i:end], p.first && i == 0}, level+1)
		i = end
	}
}

// metaspace replaces spaces by a visible mark and cuts before each mark. It is
// also the settings of the decoder of that name.
type metaspace struct {
	mark    string
	prepend string // always, first, never
	cut     bool
}

func newMetaspace(raw json.RawMessage) (*metaspace, error) {
	j := struct {
		Replacement    string
		PrependScheme  string `json:"prepend_scheme"`
		AddPrefixSpace *bool  `json:"add_prefix_space"` // older spelling of always and never
		Split          *bool
	}{Replacement: "▁"}
	if err := unmarshal(raw, &j); err != nil {
		return nil, err
	}
	m := &metaspace{mark: j.Replacement, prepend: j.PrependScheme, cut: j.Split == nil || *j.Split}
	if m.prepend == "" {
		m.prepend = "always"
		if j.AddPrefixSpace != nil && !*j.AddPrefixSpace {
			m.prepend = "never"
		}
	}
	if m.prepend != "always" && m.prepend != "first" && m.prepend != "never" {
		return nil, fmt.Errorf("%w: prepend_scheme %q", ErrUnknownComponent, m.prepend)
	}
	if utf8.RuneCountInString(m.mark) != 1 {
		return nil, fmt.Errorf("%w: replacement %q is not one character", ErrMalformed, m.mark)
	}
	return m, nil
}

func (m *metaspace) split(e *encoder, p piece, level int) {
	s := strings.ReplaceAll(p.s, " ", m.mark)
	if (m.prepend == "always" || m.prepend == "first" && p.first) && !strings.HasPrefix(s, m.mark) {
		s = m.mark + s
	}
	if !m.cut {
		e.emit(piece{s, p.first}, level+1)
		return
	}
	for start := 0; start < len(s) && !e.over; {
		end := len(s)
		next := start
		if strings.HasPrefix(s[start:], m.mark) {
			next += len(m.mark)
		}
		if i := strings.Index(s[next:], m.mark); i >= 0 {
			end = next + i
		}
		e.emit(piece{s[start:end], p.first && start == 0}, level+1)
		start = end
	}
}
