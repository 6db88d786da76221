package tokenizer

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestNormalizers(t *testing.T) {
	bert := func(settings object) object {
		out := object{"type": "BertNormalizer", "clean_text": false, "handle_chinese_chars": false, "strip_accents": false, "lowercase": false}
		for k, v := range settings {
			out[k] = v
		}
		return out
	}
	cases := []struct {
		name      string
		component object
		in, want  string
	}{
		{"nfc", object{"type": "NFC"}, "e\u0301Åﬁ", "éÅﬁ"},
		{"nfd", object{"type": "NFD"}, "éﬁ", "e\u0301ﬁ"},
		{"nfkc", object{"type": "NFKC"}, "ﬁ①½e\u0301", "fi11⁄2é"},
		{"nfkd", object{"type": "NFKD"}, "ﬁé", "fie\u0301"},
		{"nfkc leaves newer characters", object{"type": "NFKC"}, "ﬁ\U0001FBF0㋿ﬁ", "fi\U0001FBF0㋿fi"},
		{"nfc leaves newer compositions", object{"type": "NFC"}, "\U00011935\U00011930", "\U00011935\U00011930"},
		{"nfc empty", object{"type": "NFC"}, "", ""},
		{"lowercase", object{"type": "Lowercase"}, "ÀİΣΣ", "ài\u0307σσ"},
		{"strip accents", object{"type": "StripAccents"}, "e\u0301é\u20dd", "eé"},
		{"strip left", object{"type": "Strip", "strip_left": true, "strip_right": false}, "\u00a0 a ", "a "},
		{"strip right", object{"type": "Strip", "strip_left": false, "strip_right": true}, " a\u2003\n", " a"},
		{"prepend", object{"type": "Prepend", "prepend": "▁"}, "a", "▁a"},
		{"prepend nothing to nothing", object{"type": "Prepend", "prepend": "▁"}, "", ""},
		{"replace text", object{"type": "Replace", "pattern": object{"String": "ab"}, "content": "c"}, "abab a", "cc a"},
		{"replace regex", object{"type": "Replace", "pattern": object{"Regex": "[ab]+"}, "content": "$0"}, "abxé", "$0xé"},
		{"replace spaces", object{"type": "Replace", "pattern": object{"Regex": " {2,}"}, "content": " "}, "a  b c    ", "a b c "},
		{"byte level", object{"type": "ByteLevel"}, " é\n", "ĠÃ©Ċ"},
		{"bert clean text", bert(object{"clean_text": true}), "a\x00b\ufffd\u200bc\td\u2028\ue000", "abc d "},
		{"bert ideographs", bert(object{"handle_chinese_chars": true}), "a中b𠀀", "a 中 b 𠀀 "},
		{"bert accents follow lowercase", bert(object{"lowercase": true, "strip_accents": nil}), "É", "e"},
		{"bert accents kept", bert(object{"lowercase": true}), "É", "é"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			steps, err := newNormalizers(marshal(t, c.component), 0)
			if err != nil {
				t.Fatal(err)
			}
			p := piece{c.in, true}
			for _, s := range steps {
				if p, err = s.normalize(p); err != nil {
					t.Fatal(err)
				}
			}
			if p.s != c.want {
				t.Errorf("normalize %+q = %+q, want %+q", c.in, p.s, c.want)
			}
		})
	}
}

// TestPrecompiledIsBounded feeds random tables: every index comes from the file.
func TestPrecompiledIsBounded(t *testing.T) {
	m := &precompiled{units: []uint32{1<<31 - 1, 0xFFFFFFFF, 'a' | 1<<8 | 0x3FF<<10, 0}, table: []byte("x")}
	for _, s := range []string{"", "a", "\x00", "abc", "日本"} {
		if _, err := m.normalize(piece{s, true}); err != nil {
			t.Error(err)
		}
	}
}

func TestAppendLossy(t *testing.T) {
	cases := []struct{ in, want, rest string }{
		{"abc", "abc", ""},
		{"\xff", "\ufffd", ""},
		{"\xe2\x98", "", "\xe2\x98"},
		{"\xe2\x98a", "\ufffda", ""},
		{"\xe2\x28\xa1", "\ufffd(\ufffd", ""},
		{"\xf0\x9f\x99\x82\xf0\x9f", "🙂", "\xf0\x9f"},
		{"\xed\xa0\x80", "\ufffd\ufffd\ufffd", ""}, // a surrogate
		{"\xc0\x80", "\ufffd\ufffd", ""},           // overlong
		{"\xe0\x80\x80", "\ufffd\ufffd\ufffd", ""},
		{"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd", ""},
		{"\xf0\x80", "\ufffd\ufffd", ""},
		{"a\x80\x80b", "a\ufffd\ufffdb", ""},
		{"é\xc3", "é", "\xc3"},
	}
	for _, c := range cases {
		out, rest := appendLossy(nil, []byte(c.in), false)
		if string(out) != c.want || string(rest) != c.rest {
			t.Errorf("appendLossy(%q) = %q, %q; want %q, %q", c.in, out, rest, c.want, c.rest)
		}
		want := c.want
		if c.rest != "" {
			want += "\ufffd"
		}
		if got := toValid(c.in); got != want {
			t.Errorf("toValid(%q) = %q, want %q", c.in, got, want)
		}
	}
}

// TestEncodeInvalidText covers input that is not UTF-8: each maximal ill-formed
// part counts as U+FFFD, in every place that looks at characters.
func TestEncodeInvalidText(t *testing.T) {
	for _, name := range vectorNames {
		tok := loadVector(t, name)
		for _, s := range []string{"\xff", "a\xe2\x98 b\xf0\x9f", "\xed\xa0\x80<s>\x80", strings.Repeat("\xc3", 50)} {
			got, want := tok.Encode(s, true), tok.Encode(toValid(s), true)
			if !slices.Equal(got, want) {
				t.Errorf("%s: Encode(%q) = %v, want %v", name, s, got, want)
			}
		}
	}
}

func TestByteAlphabet(t *testing.T) {
	var all []byte
	for b := range 256 {
		all = append(all, byte(b))
	}
	spelled := toAlphabet(string(all))
	if back, ok := fromAlphabet(spelled); !ok || back != string(all) {
		t.Errorf("round trip of all bytes = %q, %v", back, ok)
	}
	if toAlphabet(" \n") != "ĠĊ" {
		t.Errorf("space and line feed = %s", toAlphabet(" \n"))
	}
	for _, s := range []string{" ", "a b", "日", "\u0144"} {
		if raw, ok := fromAlphabet(s); ok {
			t.Errorf("fromAlphabet(%q) = %q", s, raw)
		}
	}
}

// TestSplitBehaviors is the example of the reference's documentation.
func TestSplitBehaviors(t *testing.T) {
	const text = "the-final--countdown"
	cases := []struct {
		behavior string
		invert   bool
		want     string
	}{
		{"Removed", false, "the|final|countdown"},
		{"Isolated", false, "the|-|final|-|-|countdown"},
		{"MergedWithPrevious", false, "the-|final-|-|countdown"},
		{"MergedWithNext", false, "the|-final|-|-countdown"},
		{"Contiguous", false, "the|-|final|--|countdown"},
		{"Removed", true, "-|-|-"},
		{"Isolated", true, "the|-|final|-|-|countdown"},
		{"MergedWithNext", true, "the-|final-|-|countdown"},
		{"Contiguous", true, "the|-|final|--|countdown"},
	}
	for _, c := range cases {
		raw, err := json.Marshal(object{"type": "Split", "pattern": object{"String": "-"}, "behavior": c.behavior, "invert": c.invert})
		if err != nil {
			t.Fatal(err)
		}
		steps, err := newPreTokenizers(raw, 0)
		if err != nil {
			t.Fatal(err)
		}
		var got pieceLog
		e := &encoder{t: &Tokenizer{preTokenizers: steps, model: &got}}
		e.emit(piece{text, true}, 0)
		if s := strings.Join(got, "|"); s != c.want {
			t.Errorf("%s, invert %v: %s, want %s", c.behavior, c.invert, s, c.want)
		}
	}
}

// pieceLog is a model that records its pieces.
type pieceLog []string

func (l *pieceLog) encode(_ *encoder, s string) { *l = append(*l, s) }
