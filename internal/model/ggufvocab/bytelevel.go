package ggufvocab

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/model/gguf"
)

// preTokenizer says how text is cut before byte-level BPE. Files carry only its
// name; the patterns are those of the original tokenizers.
type preTokenizer struct {
	names []string // of tokenizer.ggml.pre
	// patterns are split at in turn. Without any, the byte-level step uses the
	// pattern of GPT-2.
	patterns []string
	digits   bool // each digit by itself, before anything else
	nfc      bool // the text is normalized
	// ignoreMerges takes a piece that is a token as it is.
	ignoreMerges bool
	bos          bool // a first token is added unless the file says otherwise
}

// Parts that patterns share.
const (
	contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	spaces       = `|\s*[\r\n]+|\s+(?!\S)|\s+`
	casedWord    = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	cappedWord   = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`
)

func preTokenizers() []preTokenizer {
	return []preTokenizer{
		{
			names:        []string{"llama-bpe", "llama3", "llama-v3"},
			patterns:     []string{contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*` + spaces},
			ignoreMerges: true, bos: true,
		}, {
			names:    []string{"qwen2", "deepseek-r1-qwen"},
			patterns: []string{contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*` + spaces},
			nfc:      true,
		}, {
			names:    []string{"qwen35"},
			patterns: []string{contractions + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*` + spaces},
			nfc:      true,
		}, {
			names: []string{"gpt-2", "phi-2"},
		}, {
			names:  []string{"smollm", "starcoder"},
			digits: true,
		}, {
			names: []string{"gpt-4o", "llama4"},
			patterns: []string{casedWord + contractions + `?|` + cappedWord + contractions +
				`?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*` + spaces},
		}, {
			names:        []string{"tekken"},
			patterns:     []string{casedWord + `|` + cappedWord + `|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*` + spaces},
			ignoreMerges: true, bos: true,
		}, {
			names: []string{"deepseek-v3"},
			patterns: []string{
				`\p{N}{1,3}`,
				"[一-龥\u3040-ゟ゠-ヿ]+",
				"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" +
					`|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*` + spaces,
			},
		},
	}
}

// byteLevel makes the tokenizer of a vocabulary of byte-level BPE.
func (w *words) byteLevel(keys gguf.Keys) (file tokenizerFile, err error) {
	pre, err := findPreTokenizer(keys)
	if err != nil {
		return file, err
	}
	if w.bos, err = flag(keys, "add_bos_token", pre.bos); err != nil {
		return file, err
	}
	if w.eos, err = flag(keys, "add_eos_token", false); err != nil {
		return file, err
	}
	if err := w.readMerges(keys); err != nil {
		return file, err
	}
	// Unused tokens pad the vocabulary to the rows of the model.
	vocab, err := w.vocabulary(normal, byteToken)
	if err != nil {
		return file, err
	}
	if pre.nfc {
		file.Normalizer = object{"type": "NFC"}
	}
	var steps []any
	if pre.digits {
		steps = append(steps, object{"type": "Digits", "individual_digits": true})
	}
	for _, p := range pre.patterns {
		steps = append(steps, object{"type": "Split", "pattern": object{"Regex": p}, "behavior": "Isolated", "invert": false})
	}
	level := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": len(pre.patterns) == 0}
	file.Version = "1.0"
	file.PreTokenizer = sequence("pretokenizers", append(steps, level)...)
	file.Decoder = level
	file.Model = bpeModel{Type: "BPE", IgnoreMerges: pre.ignoreMerges, Vocab: vocab, Merges: w.merges}
	return file, nil
}

func findPreTokenizer(keys gguf.Keys) (preTokenizer, error) {
	name, ok, err := keys.Text(keyPrefix + "pre")
	if err != nil {
		return preTokenizer{}, err
	}
	if !ok {
		return preTokenizer{}, badf("%spre is missing, so the pre-tokenizer is unknown: convert the model again", keyPrefix)
	}
	var known []string
	for _, p := range preTokenizers() {
		if slices.Contains(p.names, name) {
			return p, nil
		}
		known = append(known, p.names...)
	}
	return preTokenizer{}, fmt.Errorf("%w: %spre %q; known are %s", ErrUnknown, keyPrefix, name, strings.Join(known, ", "))
}

func (w *words) readMerges(keys gguf.Keys) error {
	list, ok, err := keys.Texts(keyPrefix + "merges")
	if err != nil {
		return err
	}
	if !ok {
		return badf("%smerges is missing", keyPrefix)
	}
	w.merges = make([][]string, len(list))
	for i, m := range list {
		a, b, ok := strings.Cut(m, " ")
		if !ok || a == "" || b == "" || strings.Contains(b, " ") {
			return badf("%smerges: merge %d is %q, not two tokens", keyPrefix, i, m)
		}
		w.merges[i] = []string{a, b}
	}
	return nil
}
