package cluster

import (
	"errors"
	"slices"
	"testing"
)

func TestWords(t *testing.T) {
	for line, want := range map[string][]string{
		"": nil, "  \t\n ": nil, "a": {"a"}, " a  b\tc\nd ": {"a", "b", "c", "d"},
		`'a b' c`: {"a b", "c"}, `a' 'b`: {"a b"}, `""`: {""}, `'' a`: {"", "a"},
		`"a b"`: {"a b"}, `"a\"b"`: {`a"b`}, `"a\n"`: {`a\n`}, `"\\ \$ \` + "`" + `"`: {"\\ $ `"},
		`a\ b`: {"a b"}, `\'a\'`: {"'a'"}, `'a\b'`: {`a\b`}, "a\\\nb": {"ab"}, "\"a\\\nb\"": {"ab"}, `--x='{"a": [1, 2]}'`: {`--x={"a": [1, 2]}`},
		`$HOME *`: {"$HOME", "*"}, `a#b`: {"a#b"}, "größe": {"größe"},
	} {
		got, err := Words(line)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q is %q %v, want %q", line, got, err, want)
		}
	}
	for _, line := range []string{`'`, `"`, `a 'b`, `a "b`, `a\`, `"a\`, `'a"`, `"\"`} {
		if got, err := Words(line); !errors.Is(err, ErrUnbalanced) {
			t.Errorf("%q is %q %v", line, got, err)
		}
	}
}

func TestJoinWords(t *testing.T) {
	for want, words := range map[string][]string{
		"": nil, "vllm serve /m --port=1 a@b:c,d%+_.-": {"vllm", "serve", "/m", "--port=1", "a@b:c,d%+_.-"},
		"''": {""}, "'a b'": {"a b"}, `'it'\''s'`: {"it's"}, `'{"a":1}'`: {`{"a":1}`}, "'$HOME' '~'": {"$HOME", "~"},
	} {
		if got := JoinWords(words); got != want {
			t.Errorf("%q is %s, want %s", words, got, want)
		}
	}
}

func FuzzWords(f *testing.F) {
	f.Add(`a 'b c' "d\"e" \f`)
	f.Fuzz(func(t *testing.T, line string) {
		words, err := Words(line)
		if err != nil {
			return
		}
		again, err := Words(JoinWords(words))
		if err != nil || !slices.Equal(again, words) {
			t.Errorf("%q, joined and split: %q %v", words, again, err)
		}
	})
}
