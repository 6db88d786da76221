package tokenizer

import (
	"slices"
	"testing"
	"unicode/utf8"
)

// FuzzLoad feeds arbitrary files. Whatever loads must encode and decode.
func FuzzLoad(f *testing.F) {
	f.Add(string(marshal(f, smallFile())))
	for _, name := range []string{"added-edge", "t5-like"} {
		f.Add(string(readFile(f, name+".tokenizer.json")))
	}
	model := `"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["▁",-1],["a",-2],["<0x41>",-3]]}`
	for _, part := range []string{
		`"normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Replace","pattern":{"Regex":"a|b*"},"content":"xy"}]}`,
		`"normalizer":{"type":"Precompiled","precompiled_charsmap":"BAAAAAAAAAAA"}`,
		`"normalizer":{"type":"BertNormalizer"}`,
		`"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true}`,
		`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?i:a)+|[[:alpha:]&&[^b]]"},"behavior":"MergedWithNext","invert":true}`,
		`"post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}},{"SpecialToken":{"id":"a"}}],"special_tokens":{"a":{"ids":[2]}}}`,
		`"post_processor":{"type":"RobertaProcessing","sep":["a",2],"cls":["a",2]}`,
		`"decoder":{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"ByteFallback"},{"type":"Strip","content":"a","start":1,"stop":1}]}`,
		`"decoder":{"type":"WordPiece","prefix":"##","cleanup":true}`,
		`"added_tokens":[{"id":2,"content":"a","single_word":true,"lstrip":true,"rstrip":true,"normalized":true,"special":true}]`,
	} {
		f.Add(`{` + part + `,` + model + `}`)
	}
	f.Fuzz(func(t *testing.T, file string) {
		lim := defaultLimits
		lim.tokens, lim.sparseIDs = 10000, 10000
		tok, err := load([]byte(file), lim)
		if err != nil {
			return
		}
		for _, text := range []string{"", " a\u0301b  <unk>\n☃12", "\xff▁a A"} {
			ids := tok.Encode(text, true)
			for _, id := range ids {
				if _, ok := tok.Token(id); !ok {
					t.Errorf("Encode(%q) gave id %d of no token", text, id)
				}
			}
			for _, skip := range []bool{false, true} {
				if got, want := streamed(tok, ids, skip), streamText(tok, ids, skip); got != want {
					t.Errorf("stream of %v = %q, want %q", ids, got, want)
				}
			}
		}
	})
}

// FuzzRoundTrip encodes arbitrary text with every recorded tokenizer and reads
// arbitrary ids. Byte-level tokenizers without a normalizer lose nothing.
func FuzzRoundTrip(f *testing.F) {
	for _, s := range textParts {
		f.Add(s+"x "+s, []byte(s))
	}
	f.Add("<|begin_of_text|>Hi <|eot_id|>\n\n", []byte{0, 1, 2, 255})
	toks := map[string]*Tokenizer{}
	for _, name := range vectorNames {
		toks[name] = loadVector(f, name)
	}
	f.Fuzz(func(t *testing.T, text string, numbers []byte) {
		var random []uint32
		for i := 1; i < len(numbers); i += 2 {
			random = append(random, uint32(numbers[i-1])<<8&0x3FF|uint32(numbers[i]))
		}
		for name, tok := range toks {
			ids, err := tok.EncodeChecked(nil, text, false)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if again := tok.EncodeTo([]uint32{7}, text, false); !slices.Equal(again[1:], ids) || again[0] != 7 {
				t.Errorf("%s: EncodeTo(%q) = %v, want 7 and %v", name, text, again, ids)
			}
			if name == "llama3-like" {
				if got := tok.Decode(ids, false); got != toValid(text) {
					t.Errorf("%s: %q comes back as %q", name, text, got)
				}
			}
			for _, list := range [][]uint32{ids, random} {
				for _, skip := range []bool{false, true} {
					got := streamed(tok, list, skip)
					if want := streamText(tok, list, skip); got != want {
						t.Errorf("%s: stream of %v = %q, want %q", name, list, got, want)
					}
					if !utf8.ValidString(got) || !utf8.ValidString(tok.Decode(list, skip)) {
						t.Errorf("%s: text of %v is not UTF-8", name, list)
					}
				}
			}
		}
	})
}

// FuzzTranslateRegex feeds arbitrary patterns: what translates must compile or
// be refused, and must not run away.
func FuzzTranslateRegex(f *testing.F) {
	for _, p := range regexPatterns {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		if !utf8.ValidString(pattern) || len(pattern) > 100 {
			return
		}
		finder, err := newRegexFinder(pattern)
		if err != nil {
			return
		}
		const text = "Ab 1é\n"
		spans, _ := finder.spans(nil, text)
		at := 0
		for _, s := range spans {
			if s.start < at || s.end < s.start || !utf8.ValidString(text[s.start:s.end]) {
				t.Errorf("pattern %q: spans %v", pattern, spans)
			}
			at = s.end
		}
	})
}
