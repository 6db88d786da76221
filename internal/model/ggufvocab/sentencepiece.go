package ggufvocab

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/model/gguf"
)

// maxHashed bounds the work of finding merges, in bytes: a token is looked up in
// parts as many times as it has characters. The largest vocabularies in use need a
// hundredth of it.
const maxHashed = 1 << 31

// sentencePiece makes the tokenizer of a SentencePiece vocabulary, whose scores say
// in which order pieces are joined.
func (w *words) sentencePiece(keys gguf.Keys) (file tokenizerFile, err error) {
	for name, to := range map[string]struct {
		flag *bool
		def  bool
	}{"add_bos_token": {&w.bos, true}, "add_eos_token": {&w.eos, false}, "add_space_prefix": {&w.prefix, true}} {
		if *to.flag, err = flag(keys, name, to.def); err != nil {
			return file, err
		}
	}
	if squeeze, err := flag(keys, "remove_extra_whitespaces", false); err != nil || squeeze {
		return file, cmp.Or(err, fmt.Errorf("%w: %sremove_extra_whitespaces is set", ErrUnknown, keyPrefix))
	}
	if w.scores == nil {
		return file, badf("%sscores is missing", keyPrefix)
	}
	vocab, err := w.vocabulary(normal, unknown, control, unused, byteToken)
	if err != nil {
		return file, err
	}
	if err := w.findMerges(); err != nil {
		return file, err
	}
	replace := func(from, to string) object {
		return object{"type": "Replace", "pattern": object{"String": from}, "content": to}
	}
	normalizers := []any{replace(" ", "▁")}
	decoders := []any{replace("▁", " "), object{"type": "ByteFallback"}, object{"type": "Fuse"}}
	if w.prefix {
		normalizers = append([]any{object{"type": "Prepend", "prepend": "▁"}}, normalizers...)
		decoders = append(decoders, object{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	file.Version = "1.0"
	file.Normalizer = sequence("normalizers", normalizers...)
	file.Decoder = sequence("decoders", decoders...)
	file.Model = bpeModel{
		Type: "BPE", Vocab: vocab, Merges: w.merges, FuseUnknown: true,
		ByteFallback: w.hasAllBytes(vocab), Unknown: w.unknownToken(),
	}
	return file, nil
}

func (w *words) hasAllBytes(vocab map[string]int) bool {
	for b := range 256 {
		if id, ok := vocab[fmt.Sprintf("<0x%02X>", b)]; !ok || w.kinds[id] != byteToken {
			return false
		}
	}
	return true
}

func (w *words) unknownToken() *string {
	if id, ok := w.roles["unk_token"]; ok && w.kinds[id] != userDefined {
		return &w.tokens[id]
	}
	if id := slices.Index(w.kinds, unknown); id >= 0 {
		return &w.tokens[id]
	}
	return nil
}

// merge is one way to make a token of two others.
type merge struct {
	left, right string
	leftID      int
	rightID     int
	score       float32
}

// findMerges lists every way to cut a token into two others, best score first. It
// is how the Hugging Face tools turn such a vocabulary into BPE, order of equal
// scores included: longer parts first, then smaller ids.
func (w *words) findMerges() error {
	ids := make(map[string]int, len(w.tokens))
	hashed := 0
	for id, text := range w.tokens {
		if w.kinds[id] == normal {
			ids[text] = id
			hashed += len(text) * len(text)
		}
		if hashed > maxHashed {
			return badf("%stokens: token %d makes the vocabulary too long", keyPrefix, id)
		}
	}
	var all []merge
	for id, text := range w.tokens {
		if w.kinds[id] != normal {
			continue
		}
		score := w.scores[id]
		if math.IsNaN(float64(score)) {
			return badf("%sscores: token %d has no number", keyPrefix, id)
		}
		first := len(all)
		for at := range text {
			left, right := text[:at], text[at:]
			a, ok1 := ids[left]
			b, ok2 := ids[right]
			if ok1 && ok2 {
				all = append(all, merge{left, right, a, b, score})
			}
		}
		slices.SortFunc(all[first:], func(x, y merge) int {
			return cmp.Or(cmp.Compare(x.leftID, y.leftID), cmp.Compare(x.rightID, y.rightID))
		})
	}
	slices.SortStableFunc(all, func(x, y merge) int {
		return cmp.Or(cmp.Compare(y.score, x.score),
			cmp.Compare(utf8.RuneCountInString(y.left), utf8.RuneCountInString(x.left)),
			cmp.Compare(utf8.RuneCountInString(y.right), utf8.RuneCountInString(x.right)))
	})
	w.merges = make([][]string, len(all))
	for i, m := range all {
		w.merges[i] = []string{m.left, m.right}
	}
	return nil
}
