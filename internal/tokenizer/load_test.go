package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// smallFile is a complete byte-level file to break in one place.
func smallFile() object {
	vocab := object{}
	for b, r := range byteAlphabet {
		vocab[string(r)] = b
	}
	vocab["he"], vocab["ll"], vocab["hell"], vocab["hello"] = 256, 257, 258, 259
	return object{
		"version": "1.0",
		"added_tokens": []any{
			object{"id": 260, "content": "<s>", "special": true, "normalized": false},
			object{"id": 261, "content": "<tool>", "special": false, "normalized": false},
		},
		"normalizer":    object{"type": "NFC"},
		"pre_tokenizer": byteLevel(true, false),
		"post_processor": object{
			"type": "TemplateProcessing", "single": []any{object{"SpecialToken": object{"id": "<s>", "type_id": 0}}, object{"Sequence": object{"id": "A", "type_id": 0}}},
			"pair":           []any{object{"Sequence": object{"id": "A"}}, object{"Sequence": object{"id": "B"}}},
			"special_tokens": object{"<s>": object{"id": "<s>", "ids": []any{260}, "tokens": []any{"<s>"}}},
		},
		"decoder": object{"type": "ByteLevel"},
		"model":   object{"type": "BPE", "vocab": vocab, "merges": []any{"h e", "l l", "he ll", "hell o"}},
	}
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// at returns the object at a path inside f.
func at(f object, path ...string) object {
	for _, key := range path {
		f = f[key].(object)
	}
	return f
}

func addToken(f object, token object) {
	f["added_tokens"] = append(f["added_tokens"].([]any), token)
}

func TestLoadSmall(t *testing.T) {
	tok, err := Load(marshal(t, smallFile()))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tok.Encode("hello<tool>hell", true), []uint32{260, 259, 261, 258}; !slices.Equal(got, want) {
		t.Errorf("Encode = %v, want %v", got, want)
	}
}

func TestLoadRefuses(t *testing.T) {
	unigram := func(f object) object {
		m := object{"type": "Unigram", "unk_id": 0, "vocab": []any{[]any{"<unk>", 0}, []any{"a", -1}, []any{"b", -2}}}
		f["model"], f["added_tokens"], f["post_processor"] = m, []any{}, nil
		return m
	}
	wordPiece := func(f object) object {
		m := object{"type": "WordPiece", "unk_token": "[UNK]", "vocab": object{"[UNK]": 0, "a": 1}}
		f["model"], f["added_tokens"], f["post_processor"] = m, []any{}, nil
		return m
	}
	nested := func(key string, depth int) any {
		var v any = object{"type": "NFC"}
		for range depth {
			v = object{"type": "Sequence", key: []any{v}}
		}
		return v
	}
	cases := []struct {
		name   string
		change func(f object)
		want   error
		say    string // must be in the message
	}{
		// Unknown parts, by name.
		{"normalizer type", func(f object) { f["normalizer"] = object{"type": "Nmt"} }, ErrUnknownComponent, `"Nmt"`},
		{"nested normalizer type", func(f object) {
			f["normalizer"] = sequenceOf("normalizers", object{"type": "NFC"}, object{"type": "Rot13"})
		}, ErrUnknownComponent, `item 1: unknown tokenizer component: normalizer type "Rot13"`},
		{"pre-tokenizer type", func(f object) { f["pre_tokenizer"] = object{"type": "UnicodeScripts"} }, ErrUnknownComponent, `"UnicodeScripts"`},
		{"post-processor type", func(f object) { f["post_processor"] = object{"type": "Postman"} }, ErrUnknownComponent, `"Postman"`},
		{"decoder type", func(f object) { f["decoder"] = object{"type": "CTC", "pad_token": "<pad>"} }, ErrUnknownComponent, `"CTC"`},
		{"model type", func(f object) { at(f, "model")["type"] = "Morse" }, ErrUnknownComponent, `"Morse"`},
		{"component without type", func(f object) { f["normalizer"] = object{"lower": true} }, ErrUnknownComponent, "without a type"},
		{"split behavior", func(f object) { f["pre_tokenizer"] = split("a", "Shredded") }, ErrUnknownComponent, `"Shredded"`},
		{"prepend scheme", func(f object) {
			f["pre_tokenizer"] = object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "last"}
		}, ErrUnknownComponent, `"last"`},
		{"two templates", func(f object) {
			f["post_processor"] = sequenceOf("processors", f["post_processor"], f["post_processor"])
		}, ErrUnknownComponent, "more than one"},
		{"nested too deep", func(f object) { f["normalizer"] = nested("normalizers", 40) }, ErrTooLarge, "deeper"},

		// Vocabulary.
		{"merge of unknown left", func(f object) { at(f, "model")["merges"] = []any{"qq e"} }, ErrVocabulary, `merge 0 names unknown token "qq"`},
		{"merge of unknown right", func(f object) { at(f, "model")["merges"] = []any{[]any{"h", "zz"}} }, ErrVocabulary, `"zz"`},
		{"merge into unknown", func(f object) { at(f, "model")["merges"] = []any{"h l"} }, ErrVocabulary, `makes unknown token "hl"`},
		{"merge of three", func(f object) { at(f, "model")["merges"] = []any{"h e l"} }, ErrMalformed, "merge 0"},
		{"merge pair of one", func(f object) { at(f, "model")["merges"] = []any{[]any{"h"}} }, ErrMalformed, "merge 0"},
		{"merge pair of three", func(f object) { at(f, "model")["merges"] = []any{[]any{"h", "e", "l"}} }, ErrMalformed, "merge 0"},
		{"merge of numbers", func(f object) { at(f, "model")["merges"] = []any{7} }, ErrMalformed, "merge 0"},
		{"merges not a list", func(f object) { at(f, "model")["merges"] = object{} }, ErrMalformed, "merges"},
		{"duplicate id", func(f object) { at(f, "model", "vocab")["zz"] = 5 }, ErrVocabulary, "id 5"},
		{"duplicate id of added tokens", func(f object) { addToken(f, object{"id": 261, "content": "<b>"}) }, ErrVocabulary, "id 261"},
		{"added token on another token's id", func(f object) { addToken(f, object{"id": 65, "content": "<b>"}) }, ErrVocabulary, "id 65"},
		{"added token with another id", func(f object) { addToken(f, object{"id": 300, "content": "he"}) }, ErrVocabulary, `"he" has id 300`},
		{"added token listed twice differently", func(f object) {
			addToken(f, object{"id": 261, "content": "<tool>", "special": true, "normalized": false})
		}, ErrVocabulary, "twice"},
		{"added token without content", func(f object) { addToken(f, object{"id": 262, "content": ""}) }, ErrVocabulary, "empty content"},
		{"added token without id", func(f object) { addToken(f, object{"content": "x"}) }, ErrMalformed, "lacks id"},
		{"added token too long", func(f object) { addToken(f, object{"id": 262, "content": strings.Repeat("x", 2000)}) }, ErrTooLarge, "2000 bytes"},
		{"added id past the vocabulary", func(f object) { addToken(f, object{"id": 4_000_000_000, "content": "x"}) }, ErrVocabulary, "past the vocabulary"},
		{"vocabulary id past the vocabulary", func(f object) { at(f, "model", "vocab")["zz"] = 1 << 30 }, ErrVocabulary, "past the vocabulary"},
		{"id too large for 32 bits", func(f object) { at(f, "model", "vocab")["zz"] = 1 << 40 }, ErrMalformed, `"zz"`},
		{"negative id", func(f object) { at(f, "model", "vocab")["zz"] = -1 }, ErrMalformed, `"zz"`},
		{"fractional id", func(f object) { at(f, "model", "vocab")["zz"] = 1.5 }, ErrMalformed, `"zz"`},
		{"text for an id", func(f object) { at(f, "model", "vocab")["zz"] = "5" }, ErrMalformed, `zz`},
		{"vocab not an object", func(f object) { at(f, "model")["vocab"] = []any{} }, ErrMalformed, "vocab"},
		{"vocab missing", func(f object) { delete(at(f, "model"), "vocab") }, ErrMalformed, "vocab"},
		{"model missing", func(f object) { delete(f, "model") }, ErrMalformed, "model"},
		{"unk_token unknown", func(f object) { at(f, "model")["unk_token"], f["pre_tokenizer"] = "<nope>", nil }, ErrVocabulary, `"<nope>"`},
		{"unk_id past the end", func(f object) { unigram(f)["unk_id"] = 3 }, ErrVocabulary, "unk_id 3"},
		{"unk_id negative", func(f object) { unigram(f)["unk_id"] = -1 }, ErrVocabulary, "unk_id -1"},
		{"unigram empty", func(f object) { unigram(f)["vocab"] = []any{} }, ErrVocabulary, "empty"},
		{"unigram without score", func(f object) { unigram(f)["vocab"] = []any{[]any{"a"}} }, ErrMalformed, "token 0"},
		{"unigram with null", func(f object) { unigram(f)["vocab"] = []any{[]any{nil, 0}} }, ErrMalformed, "token 0"},
		{"unigram row of three", func(f object) { unigram(f)["vocab"] = []any{[]any{"a", 0, 0}} }, ErrMalformed, "token 0"},
		{"unigram token too long", func(f object) { unigram(f)["vocab"] = []any{[]any{strings.Repeat("x", 2000), 0}} }, ErrTooLarge, "2000 bytes"},
		{"wordpiece unknown token", func(f object) { wordPiece(f)["unk_token"] = "<nope>" }, ErrVocabulary, `"<nope>"`},
		{"wordpiece negative limit", func(f object) { wordPiece(f)["max_input_chars_per_word"] = -1 }, ErrMalformed, "max_input"},
		{"wordlevel unknown token", func(f object) { wordPiece(f)["type"], at(f, "model")["unk_token"] = "WordLevel", "<nope>" }, ErrVocabulary, `"<nope>"`},
		{"template with an id past the vocabulary", func(f object) {
			at(f, "post_processor", "special_tokens", "<s>")["ids"] = []any{262}
		}, ErrVocabulary, "262"},
		{"template with an undefined token", func(f object) { at(f, "post_processor")["special_tokens"] = object{} }, ErrVocabulary, `"<s>"`},
		{"template without the text", func(f object) { at(f, "post_processor")["single"] = []any{} }, ErrMalformed, "single"},
		{"template with the text twice", func(f object) {
			a := object{"Sequence": object{"id": "A"}}
			at(f, "post_processor")["single"] = []any{a, a}
		}, ErrMalformed, "single"},
		{"template pair without B", func(f object) { at(f, "post_processor")["pair"] = []any{object{"Sequence": object{"id": "A"}}} }, ErrMalformed, "pair"},
		{"template item of nothing", func(f object) { at(f, "post_processor")["single"] = []any{object{}} }, ErrMalformed, "single"},
		{"bert processor past the vocabulary", func(f object) {
			f["post_processor"] = object{"type": "BertProcessing", "sep": []any{"[SEP]", 999}, "cls": []any{"<s>", 260}}
		}, ErrVocabulary, "999"},
		{"bert processor malformed", func(f object) { f["post_processor"] = object{"type": "BertProcessing", "sep": []any{"[SEP]"}} }, ErrMalformed, "SEP"},

		// Patterns.
		{"regex does not compile", func(f object) { f["pre_tokenizer"] = split(`(ab`, "Isolated") }, ErrPattern, "(ab"},
		{"regex with an unknown property", func(f object) { f["pre_tokenizer"] = split(`\p{Klingon}`, "Isolated") }, ErrPattern, "Klingon"},
		{"regex with an absent group", func(f object) { f["pre_tokenizer"] = split(`(?~abc)`, "Isolated") }, ErrPattern, "(?~"},
		{"regex nested too deep", func(f object) {
			f["pre_tokenizer"] = split(strings.Repeat("(", 500)+strings.Repeat(")", 500), "Isolated")
		}, ErrPattern, "nested"},
		{"regex with a huge count", func(f object) { f["pre_tokenizer"] = split(`a{1000000000}`, "Isolated") }, ErrPattern, "repeat count"},
		{"regex too long", func(f object) { f["pre_tokenizer"] = split(strings.Repeat("a", 1<<17), "Isolated") }, ErrTooLarge, "pattern"},
		{"pattern of nothing", func(f object) {
			f["pre_tokenizer"] = object{"type": "Split", "pattern": object{}, "behavior": "Isolated"}
		}, ErrMalformed, "pattern"},
		{"pattern missing", func(f object) { f["pre_tokenizer"] = object{"type": "Split", "behavior": "Isolated"} }, ErrMalformed, "pattern"},
		{"regex in the normalizer", func(f object) {
			f["normalizer"] = object{"type": "Replace", "pattern": object{"Regex": "["}, "content": ""}
		}, ErrPattern, "["},

		// Shapes and sizes.
		{"replacement explosion", func(f object) {
			double := object{"type": "Replace", "pattern": object{"String": "a"}, "content": "aaaaaaaaaaaaaaaa"}
			f["normalizer"] = sequenceOf("normalizers", double, double, double, double)
		}, ErrTooLarge, "times as long"},
		{"replacement explosion in the decoder", func(f object) {
			double := object{"type": "Replace", "pattern": object{"String": "a"}, "content": "aaaaaaaaaaaaaaaa"}
			f["decoder"] = sequenceOf("decoders", double, double, double, double)
		}, ErrTooLarge, "times as long"},
		{"replacement too long", func(f object) {
			f["normalizer"] = object{"type": "Replace", "pattern": object{"String": "a"}, "content": strings.Repeat("b", 5000)}
		}, ErrTooLarge, "5000 bytes"},
		{"prepend too long", func(f object) { f["normalizer"] = object{"type": "Prepend", "prepend": strings.Repeat("b", 5000)} }, ErrTooLarge, "5000 bytes"},
		{"metaspace of two characters", func(f object) { f["pre_tokenizer"] = object{"type": "Metaspace", "replacement": "ab"} }, ErrMalformed, "one character"},
		{"delimiter of two characters", func(f object) { f["pre_tokenizer"] = object{"type": "CharDelimiterSplit", "delimiter": "ab"} }, ErrMalformed, "one character"},
		{"strip of no character", func(f object) { f["decoder"] = object{"type": "Strip", "content": "", "start": 1, "stop": 0} }, ErrMalformed, "one character"},
		{"charsmap not base64", func(f object) { f["normalizer"] = object{"type": "Precompiled", "precompiled_charsmap": "!!"} }, ErrMalformed, "charsmap"},
		{"charsmap too short", func(f object) { f["normalizer"] = object{"type": "Precompiled", "precompiled_charsmap": "AA=="} }, ErrMalformed, "charsmap"},
		{"charsmap longer than itself", func(f object) { f["normalizer"] = object{"type": "Precompiled", "precompiled_charsmap": "/////w=="} }, ErrMalformed, "charsmap"},
		{"wrong type of a field", func(f object) { f["pre_tokenizer"] = object{"type": "ByteLevel", "use_regex": "yes"} }, ErrMalformed, "use_regex"},
		{"component is a number", func(f object) { f["decoder"] = 5 }, ErrMalformed, "decoder"},
		{"null in a decoder sequence", func(f object) { f["decoder"] = sequenceOf("decoders", nil) }, ErrMalformed, "item 0"},
		{"added tokens not a list", func(f object) { f["added_tokens"] = "no" }, ErrMalformed, "added_tokens"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := smallFile()
			c.change(f)
			_, err := Load(marshal(t, f))
			if !errors.Is(err, c.want) {
				t.Fatalf("error %v, want %v", err, c.want)
			}
			if !strings.Contains(err.Error(), c.say) {
				t.Errorf("error %q does not say %q", err, c.say)
			}
		})
	}
}

// TestLoadRefusesText covers what JSON decoding would pass over in silence.
func TestLoadRefusesText(t *testing.T) {
	whole := string(marshal(t, smallFile()))
	cases := []struct {
		name, file, say string
		want            error
	}{
		{"empty", "", "missing", ErrMalformed},
		{"not JSON", "{", "unexpected end", ErrMalformed},
		{"list", "[]", "array", ErrMalformed},
		{"invalid UTF-8", strings.Replace(whole, "tool", "to\xffol", 1), "not UTF-8 at byte", ErrMalformed},
		{"lone high surrogate", strings.Replace(whole, "tool", `to\ud800ol`, 1), "lone surrogate", ErrMalformed},
		{"lone low surrogate", strings.Replace(whole, "tool", `to\udc00ol`, 1), "lone surrogate", ErrMalformed},
		{"duplicate token", strings.Replace(whole, `"hello":259`, `"hello":259,"hello":300`, 1), `"hello" has ids`, ErrVocabulary},
		{"duplicate id of one token", strings.Replace(whole, `"hello":259`, `"hello":259,"hello":259`, 1), `id 259`, ErrVocabulary},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load([]byte(c.file))
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.say) {
				t.Errorf("error %v, want %v saying %q", err, c.want, c.say)
			}
		})
	}
	pair := strings.Replace(whole, "tool", `\ud83d\ude42\\ud800`, 1)
	if _, err := Load([]byte(pair)); err != nil {
		t.Errorf("surrogate pair and escaped backslash: %v", err)
	}
}

func TestLoadLimits(t *testing.T) {
	b := marshal(t, smallFile())
	small := defaultLimits
	small.file = len(b) - 1
	if _, err := load(b, small); !errors.Is(err, ErrTooLarge) {
		t.Errorf("file of %d bytes: error %v, want %v", len(b), err, ErrTooLarge)
	}
	for _, n := range []int{3, 259, 261} { // merges, vocabulary, with added tokens
		small = defaultLimits
		small.tokens = n
		if _, err := load(b, small); !errors.Is(err, ErrTooLarge) {
			t.Errorf("limit of %d tokens: error %v, want %v", n, err, ErrTooLarge)
		}
	}
	small.tokens = 262
	if _, err := load(b, small); err != nil {
		t.Error(err)
	}
}

// TestLoadAccepts covers spellings of older files.
func TestLoadAccepts(t *testing.T) {
	cases := []struct {
		name   string
		change func(f object)
		text   string
		want   string // tokens, joined by |
	}{
		{"model without type", func(f object) { delete(at(f, "model"), "type") }, "hello", "<s>|hello"},
		{"empty prefix and suffix", func(f object) {
			at(f, "model")["continuing_subword_prefix"], at(f, "model")["end_of_word_suffix"] = "", ""
		}, "hello", "<s>|hello"},
		{"unk_token that nothing needs", func(f object) { at(f, "model")["unk_token"] = "<nope>" }, "hello☃", "<s>|hello|â|ĺ|ĥ"},
		{"version line in merges", func(f object) {
			at(f, "model")["merges"] = []any{"#version: 0.2", "h e", "l l"}
		}, "hell", "<s>|he|ll"},
		{"nothing but a model", func(f object) {
			m := f["model"]
			clear(f)
			f["model"] = m
		}, "hello", "hello"},
		{"truncation and padding are ignored", func(f object) {
			f["truncation"] = object{"max_length": 1, "strategy": "LongestFirst", "stride": 0}
			f["padding"] = object{"strategy": object{"Fixed": 10}}
		}, "hello", "<s>|hello"},
		{"old metaspace without prefix", func(f object) {
			f["pre_tokenizer"] = object{"type": "Metaspace", "replacement": "h", "add_prefix_space": false}
		}, "e hell", "<s>|e|h|hell"},
		{"old metaspace with prefix", func(f object) {
			f["pre_tokenizer"] = object{"type": "Metaspace", "replacement": "h", "str_rep": "h", "add_prefix_space": true}
		}, "e", "<s>|he"},
		{"sparse ids", func(f object) {
			addToken(f, object{"id": 5000, "content": "<far>", "special": false})
		}, "he<far>", "<s>|he|<far>"},
		{"added token already in the vocabulary", func(f object) {
			addToken(f, object{"id": 256, "content": "he", "special": false, "normalized": false})
		}, "hello", "<s>|he|ll|o"},
		{"added token listed twice alike", func(f object) {
			addToken(f, object{"id": 261, "content": "<tool>", "special": false, "normalized": false})
		}, "he<tool>", "<s>|he|<tool>"},
		{"last of equal merges counts", func(f object) {
			at(f, "model")["merges"] = []any{"h e", "l l", "he l", "h e"}
			at(f, "model", "vocab")["hel"] = 262
		}, "hell", "<s>|he|ll"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := smallFile()
			c.change(f)
			tok, err := Load(marshal(t, f))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, id := range tok.Encode(c.text, true) {
				s, ok := tok.Token(id)
				if !ok {
					s = fmt.Sprint("?", id)
				}
				got = append(got, s)
			}
			if s := strings.Join(got, "|"); s != c.want {
				t.Errorf("Encode(%q) = %s, want %s", c.text, s, c.want)
			}
		})
	}
}
