package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

type object = map[string]any

// variant is a tokenizer made from a recorded one by changing its file, to
// cover components and settings the recorded ones do not have.
type variant struct {
	name, base string
	change     func(t testing.TB, f object)
}

func (v variant) file(t testing.TB) []byte {
	t.Helper()
	var f object
	if err := json.Unmarshal(readFile(t, v.base+".tokenizer.json"), &f); err != nil {
		t.Fatal(err)
	}
	if v.change != nil {
		v.change(t, f)
	}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func split(pattern, behavior string) object {
	return object{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": behavior, "invert": false}
}

func byteLevel(useRegex, prefixSpace bool) object {
	return object{"type": "ByteLevel", "add_prefix_space": prefixSpace, "trim_offsets": true, "use_regex": useRegex}
}

func sequenceOf(key string, items ...any) object {
	return object{"type": "Sequence", key: items}
}

func pre(items ...any) func(testing.TB, object) {
	return func(_ testing.TB, f object) { f["pre_tokenizer"] = sequenceOf("pretokenizers", items...) }
}

func normalizers(items ...any) func(testing.TB, object) {
	return func(_ testing.TB, f object) { f["normalizer"] = sequenceOf("normalizers", items...) }
}

func both(changes ...func(testing.TB, object)) func(testing.TB, object) {
	return func(t testing.TB, f object) {
		for _, c := range changes {
			c(t, f)
		}
	}
}

func set(key string, value any) func(testing.TB, object) {
	return func(_ testing.TB, f object) { f[key] = value }
}

func setModel(key string, value any) func(testing.TB, object) {
	return func(_ testing.TB, f object) { f["model"].(object)[key] = value }
}

const (
	deepseekPattern = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
	kimiPattern     = `[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	cl100kPattern   = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`
	bloomPattern    = ` ?[^(\s|[.,!?…。，、।۔،])]+`
	llama3Pattern   = foldedContractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*` + spaceTail
	qwen35Pattern   = foldedContractions + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*` + spaceTail
	gpt2Pattern     = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	o200kPattern    = o200kWord1 + foldedContractions + `?|` + o200kWord2 + foldedContractions + `?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*` + spaceTail
	tekkenPattern   = o200kWord1 + `|` + o200kWord2 + `|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*` + spaceTail
)

// byteBPE is a byte-level tokenizer whose pre-tokenizer splits by a pattern.
func byteBPE(pattern string) func(testing.TB, object) {
	return pre(split(pattern, "Isolated"), byteLevel(false, false))
}

var variants = slices.Concat(recorded(), []variant{
	{"gpt2", "qwen2-like", pre(byteLevel(true, false))},
	{"roberta", "qwen2-like", both(pre(byteLevel(true, true)), set("post_processor", object{"type": "RobertaProcessing",
		"sep": []any{"<|im_end|>", 618}, "cls": []any{"<|im_start|>", 617}, "trim_offsets": true, "add_prefix_space": true}))},
	{"o200k", "llama3-like", byteBPE(o200kPattern)},
	{"tekken", "llama3-like", byteBPE(tekkenPattern)},
	{"qwen3.5", "qwen2-like", byteBPE(qwen35Pattern)},
	{"kimi", "llama3-like", byteBPE(kimiPattern)},
	{"cl100k", "llama3-like", byteBPE(cl100kPattern)},
	{"bloom", "qwen2-like", byteBPE(bloomPattern)},
	{"deepseek", "llama3-like", pre(split(`\p{N}{1,3}`, "Isolated"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", "Isolated"),
		split(deepseekPattern, "Isolated"), byteLevel(false, false))},
	{"starcoder", "qwen2-like", pre(object{"type": "Digits", "individual_digits": true}, byteLevel(true, false))},
	{"falcon", "qwen2-like", pre(object{"type": "Punctuation", "behavior": "Contiguous"}, byteLevel(true, false),
		object{"type": "Digits", "individual_digits": false}, split("[0-9][0-9][0-9]", "Isolated"))},
	{"split-removed", "qwen2-like", pre(split(`\s`, "Removed"), byteLevel(false, false))},
	{"split-previous", "qwen2-like", pre(split(`[\s\p{P}]`, "MergedWithPrevious"), byteLevel(false, false))},
	{"split-next", "qwen2-like", pre(split(`[\s\p{P}]`, "MergedWithNext"), byteLevel(false, false))},
	{"split-contiguous", "qwen2-like", pre(split(`[\s\p{P}]`, "Contiguous"), byteLevel(false, false))},
	{"split-inverted", "qwen2-like", pre(object{"type": "Split", "pattern": object{"Regex": `\p{L}+`}, "behavior": "MergedWithNext", "invert": true}, byteLevel(false, false))},
	{"delimiter", "qwen2-like", pre(object{"type": "CharDelimiterSplit", "delimiter": "e"}, byteLevel(false, true))},
	{"byte-normalizer", "qwen2-like", both(normalizers(object{"type": "NFC"}, object{"type": "ByteLevel"}), set("pre_tokenizer", nil))},
	{"nfd-strip-accents", "qwen2-like", normalizers(object{"type": "NFD"}, object{"type": "StripAccents"}, object{"type": "Lowercase"},
		object{"type": "Strip", "strip_left": true, "strip_right": true})},
	{"replace-regex", "qwen2-like", normalizers(object{"type": "NFKD"}, object{"type": "Replace", "pattern": object{"Regex": `[aeiou](?=\p{L})`}, "content": "_"},
		object{"type": "Replace", "pattern": object{"String": "he"}, "content": ""})},
	{"suffix", "qwen2-like", both(pre(byteLevel(true, false)), withSuffix)},
	{"llama2-legacy-false", "llama2-like", both(set("normalizer", nil), set("pre_tokenizer", object{"type": "Metaspace", "replacement": "▁",
		"prepend_scheme": "first", "split": false}), set("decoder", sequenceOf("decoders", object{"type": "Replace", "pattern": object{"String": "▁"}, "content": " "},
		object{"type": "ByteFallback"}, object{"type": "Fuse"}, object{"type": "Strip", "content": " ", "start": 1, "stop": 0})))},
	{"metaspace-never", "llama2-like", both(set("normalizer", nil), set("pre_tokenizer", object{"type": "Metaspace", "replacement": "▁",
		"prepend_scheme": "never", "split": true}), set("decoder", object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": true}))},
	{"bytes-metaspace", "llama2-like", set("decoder", sequenceOf("decoders", object{"type": "ByteFallback"},
		object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}))},
	{"strip-both", "llama2-like", set("decoder", sequenceOf("decoders", object{"type": "ByteFallback"}, object{"type": "Fuse"},
		object{"type": "Replace", "pattern": object{"String": "▁"}, "content": " "}, object{"type": "Strip", "content": " ", "start": 2, "stop": 2}))},
	{"replace-fused", "llama2-like", set("decoder", sequenceOf("decoders", object{"type": "Fuse"},
		object{"type": "Replace", "pattern": object{"String": "▁t"}, "content": "_"}, object{"type": "Replace", "pattern": object{"Regex": "▁+"}, "content": " "}))},
	{"no-decoder", "llama2-like", set("decoder", nil)},
	{"no-fallback", "llama2-like", setModel("byte_fallback", false)},
	{"unfused", "llama2-like", both(setModel("byte_fallback", false), setModel("fuse_unk", false))},
	{"half-fallback", "llama2-like", halfFallback},
	{"ignore-merges", "gemma-like", setModel("ignore_merges", true)},
	{"unigram-bytes", "t5-like", unigramBytes},
	{"unigram-xlmr", "t5-like", both(set("normalizer", nil), precompiledMap, set("pre_tokenizer",
		object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}))},
	{"bert", "llama2-like", wordPieceFile},
	{"wordlevel", "llama2-like", wordLevelFile},
})

func recorded() (out []variant) {
	for _, name := range vectorNames {
		out = append(out, variant{name: name, base: name})
	}
	return out
}

// withSuffix marks the last symbol of a word, as CLIP does.
func withSuffix(_ testing.TB, f object) {
	m := f["model"].(object)
	m["end_of_word_suffix"] = "</w>"
	vocab := m["vocab"].(object)
	m["unk_token"] = "!"
	next := float64(2000)
	for _, r := range byteAlphabet {
		vocab[string(r)+"</w>"] = next
		next++
	}
	merges := m["merges"].([]any)
	for _, s := range []string{"t h", "th e", "e r", "i n", "in g"} {
		a, b, _ := strings.Cut(s, " ")
		vocab[a+b+"</w>"] = next
		next++
		merges = append(merges, a+" "+b+"</w>")
	}
	m["merges"] = merges
	// Added tokens must stay behind the model's, or the reference renumbers them.
	f["added_tokens"] = []any{}
	f["normalizer"], f["post_processor"] = nil, nil
	f["decoder"] = object{"type": "BPEDecoder", "suffix": "</w>"}
	renumber(vocab)
}

// renumber makes ids dense, in the order they had.
func renumber(vocab object) {
	keys := slices.SortedFunc(maps.Keys(vocab), func(a, b string) int { return int(vocab[a].(float64) - vocab[b].(float64)) })
	for i, k := range keys {
		vocab[k] = float64(i)
	}
}

// halfFallback renames some byte tokens, so that some characters have no bytes.
func halfFallback(_ testing.TB, f object) {
	m := f["model"].(object)
	vocab := m["vocab"].(object)
	for b := 0xE3; b < 0xF1; b++ {
		key := fmt.Sprintf("<0x%02X>", b)
		vocab["<gone"+key] = vocab[key]
		delete(vocab, key)
	}
	m["fuse_unk"] = false
}

func unigramBytes(_ testing.TB, f object) {
	m := f["model"].(object)
	m["byte_fallback"] = true
	vocab := m["vocab"].([]any)
	added := f["added_tokens"].([]any)
	for b := range 256 {
		vocab = append(vocab, []any{fmt.Sprintf("<0x%02X>", b), -20.0})
	}
	m["vocab"] = vocab
	for i, a := range added {
		if a := a.(object); a["id"].(float64) >= 742 {
			a["id"] = a["id"].(float64) + 256
			added[i] = a
		}
	}
	f["decoder"] = sequenceOf("decoders", object{"type": "Replace", "pattern": object{"String": "▁"}, "content": " "},
		object{"type": "ByteFallback"}, object{"type": "Fuse"})
}

// wordPieceFile turns the base's words into a BERT file.
func wordPieceFile(_ testing.TB, f object) {
	vocab := object{}
	add := func(s string) {
		if _, ok := vocab[s]; !ok && s != "" {
			vocab[s] = float64(len(vocab))
		}
	}
	for _, s := range []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"} {
		add(s)
	}
	for _, token := range slices.Sorted(maps.Keys(f["model"].(object)["vocab"].(object))) {
		word, begins := strings.CutPrefix(strings.ToLower(token), "▁")
		if begins {
			add(word)
		} else {
			add("##" + word)
		}
		if len([]rune(word)) == 1 {
			add(word)
		}
	}
	special := func(id int, s string) object {
		return object{"id": id, "content": s, "single_word": false, "lstrip": s == "[MASK]", "rstrip": false, "normalized": false, "special": true}
	}
	f["added_tokens"] = []any{special(0, "[PAD]"), special(1, "[UNK]"), special(2, "[CLS]"), special(3, "[SEP]"), special(4, "[MASK]")}
	f["model"] = object{"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 12, "vocab": vocab}
	f["normalizer"] = object{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": nil, "lowercase": true}
	f["pre_tokenizer"] = object{"type": "BertPreTokenizer"}
	f["post_processor"] = object{"type": "BertProcessing", "sep": []any{"[SEP]", 3}, "cls": []any{"[CLS]", 2}}
	f["decoder"] = object{"type": "WordPiece", "prefix": "##", "cleanup": true}
}

func wordLevelFile(t testing.TB, f object) {
	wordPieceFile(t, f)
	vocab := object{"[UNK]": 0.0}
	for token := range f["model"].(object)["vocab"].(object) {
		if token != "[UNK]" && !strings.HasPrefix(token, "##") {
			vocab[token] = 0.0
		}
	}
	for i, token := range slices.Sorted(maps.Keys(vocab)) {
		vocab[token] = float64(i)
	}
	f["model"] = object{"type": "WordLevel", "unk_token": "[UNK]", "vocab": vocab}
	f["added_tokens"], f["normalizer"], f["post_processor"], f["decoder"] = []any{}, nil, nil, nil
	f["pre_tokenizer"] = object{"type": "Whitespace"}
}

// precompiledMap sets a character map like SentencePiece's nmt_nfkc.
func precompiledMap(_ testing.TB, f object) {
	f["normalizer"] = sequenceOf("normalizers", object{"type": "Precompiled", "precompiled_charsmap": base64.StdEncoding.EncodeToString(charsmap(map[string]string{
		"ﬁ": "fi", "①": "1", "\u00a0": " ", "\u200b": "", "\u3000": " ", "\r\n": " ", "\n": " ", "\t": " ", "½": "1⁄2", "ﷺ": "صلى الله عليه وسلم",
		"e\u0301": "é", "Å": "Å", "ｈ": "h", "㎏": "kg", "e": "e", "☃": "snowman", "\u0301": "", "T": "t",
	}))}, object{"type": "Replace", "pattern": object{"Regex": " {2,}"}, "content": " "})
}

// charsmap builds the file format of the Precompiled normalizer.
func charsmap(entries map[string]string) []byte {
	type node struct {
		kids  map[byte]*node
		value int
	}
	root := &node{kids: map[byte]*node{}, value: -1}
	var table []byte
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		n := root
		for i := range len(key) {
			if n.kids[key[i]] == nil {
				n.kids[key[i]] = &node{kids: map[byte]*node{}, value: -1}
			}
			n = n.kids[key[i]]
		}
		n.value = len(table)
		table = append(append(table, entries[key]...), 0)
	}
	units := make([]uint32, 1<<14)
	used := make([]bool, len(units))
	used[0] = true
	// A node at index p has its children at p ^ offset ^ label, and its value,
	// if any, where the label 0 would be.
	var place func(n *node, p, label int)
	place = func(n *node, p, label int) {
		labels := slices.Sorted(maps.Keys(n.kids))
		if n.value >= 0 {
			labels = append(labels, 0)
		}
		base := 1
		for ; slices.ContainsFunc(labels, func(l byte) bool { return used[base^int(l)] }) || used[base]; base++ {
		}
		used[base] = true // also keeps bases unique
		units[p] = uint32(label) | uint32(p^base)<<10
		for _, l := range labels {
			used[base^int(l)] = true
		}
		if n.value >= 0 {
			units[p] |= 1 << 8
			units[base] = uint32(n.value) | 1<<31
		}
		for l, kid := range n.kids {
			place(kid, base^int(l), int(l))
		}
	}
	place(root, 0, 0)
	out := binary.LittleEndian.AppendUint32(nil, uint32(4*len(units)))
	for _, u := range units {
		out = binary.LittleEndian.AppendUint32(out, u)
	}
	return append(out, table...)
}
