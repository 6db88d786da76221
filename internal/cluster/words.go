package cluster

import (
	"errors"
	"regexp"
	"strings"
)

// ErrUnbalanced is returned by [Words] when a quote is not closed, or when the text ends after
// a backslash.
var ErrUnbalanced = errors.New("a quote is not closed, or the text ends after a backslash")

// Words splits a command line into words as a POSIX shell does, without expanding anything:
// single quotes keep all, double quotes let a backslash precede \, ", $ and `.
func Words(line string) ([]string, error) {
	var (
		words []string
		word  strings.Builder
		open  bool // a word has begun
		quote byte
	)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote == '\'' && c != '\'', quote == '"' && c != '"' && c != '\\':
			word.WriteByte(c)
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\':
			if i++; i == len(line) {
				return nil, ErrUnbalanced
			}
			if quote == '"' && !strings.ContainsRune("\\\"$`\n", rune(line[i])) {
				word.WriteByte('\\')
			}
			if open = true; line[i] != '\n' {
				word.WriteByte(line[i])
			}
		case c == '\'' || c == '"':
			quote, open = c, true
		case c == ' ' || c == '\t' || c == '\n':
			if open {
				words = append(words, word.String())
				word.Reset()
			}
			open = false
		default:
			word.WriteByte(c)
			open = true
		}
	}
	if quote != 0 {
		return nil, ErrUnbalanced
	}
	if open {
		words = append(words, word.String())
	}
	return words, nil
}

// plainWord matches words that need no quotes in a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// JoinWords returns the line that [Words] splits into words, with quotes where it needs some.
func JoinWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if quoted[i] = w; !plainWord.MatchString(w) {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
