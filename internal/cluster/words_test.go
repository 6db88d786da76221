package cluster

import (
	"bufio"
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestWords(t *testing.T) {
	for command, want := range map[string][]string{
		"vllm serve m":                    {"vllm", "serve", "m"},
		"  a\t b\nc  ":                    {"a", "b", "c"},
		`a 'b c' "d e" f\ g`:              {"a", "b c", "d e", "f g"},
		`a --x='{"k": "v"}' "{\"k\": 1}"`: {"a", `--x={"k": "v"}`, `{"k": 1}`},
		`a '' "" b''c`:                    {"a", "", "", "bc"},
		`a "\x\$\\" '\'`:                  {"a", `\x$\`, `\`},
		"a \\\n b\\\nc \"d\\\ne\"":        {"a", "bc", "de"},
		`a b#c \~ '~' x~ [*] {a,b} X=1`:   {"a", "b#c", "~", "~", "x~", "[*]", "{a,b}", "X=1"},
		`./a=b/c d`:                       {"./a=b/c", "d"},
	} {
		if got, err := CommandWords(command); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v, want %q", command, got, err, want)
		}
	}
	for command, says := range map[string]string{
		"": "empty", " \n": "empty", "a 'b": "single quote", `a "b`: "double quote", `a "b\`: "double quote", `a \`: "backslash",
		"a | b": "'|' has a meaning", "a && b": "'&'", "a; b": "';'", "a > b": "'>'", "a < b": "'<'", "a $HOME": "'$'", "a `b`": "'`'", "a (b)": "'('",
		`a "$HOME"`: "between double quotes", "a \"`b`\"": "between double quotes", "a ~/b": "'~'", "a # b": "comment", "A=1 b": "put it into env",
	} {
		if got, err := CommandWords(command); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %q, %v, want %q", command, got, err, says)
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

// The shell of the machine splits a command as we do.
func FuzzWordsOfShell(f *testing.F) {
	f.Add(`a 'b c' "d\"e" f\ g`)
	f.Add("a \\\nb \"\\\n\" ''")
	f.Fuzz(func(t *testing.T, command string) {
		words, err := CommandWords(command)
		if err != nil || strings.ContainsAny(command, "*?[!{}\x00\r\x01\x02") || strings.ContainsFunc(command, func(r rune) bool { return r > 126 || r == '\v' || r == '\f' }) {
			return // refused, or expanded by files of the directory
		}
		out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\0' `+command).Output() //nolint:gosec // refused where it does more
		if err != nil {
			return // words with a meaning in their place, such as "if"
		}
		var got []string
		s := bufio.NewScanner(bytes.NewReader(out))
		s.Split(func(data []byte, _ bool) (int, []byte, error) {
			if i := bytes.IndexByte(data, 0); i >= 0 {
				return i + 1, data[:i], nil
			}
			return 0, nil, nil
		})
		for s.Scan() {
			got = append(got, s.Text())
		}
		if !slices.Equal(got, words) {
			t.Errorf("%q: %q, a shell has %q", command, words, got)
		}
	})
}
