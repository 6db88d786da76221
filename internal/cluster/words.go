package cluster

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Words splits a line into words as a POSIX shell does. What a shell would expand or interpret is
// refused, because no shell runs it.
func Words(command string) ([]string, error) {
	var words []string
	var word strings.Builder
	in := false // a word has begun
	end := func() {
		if in {
			words = append(words, word.String())
			word.Reset()
			in = false
		}
	}
	for i := 0; i < len(command); i++ {
		c := command[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			end()
		case c == '\'':
			n := strings.IndexByte(command[i+1:], '\'')
			if n < 0 {
				return nil, errors.New("a single quote is not closed")
			}
			word.WriteString(command[i+1 : i+1+n])
			i += n + 1
			in = true
		case c == '"':
			n, err := quoted(&word, command[i+1:])
			if err != nil {
				return nil, err
			}
			i += n
			in = true
		case c == '\\':
			if i++; i == len(command) {
				return nil, errors.New("nothing follows the last backslash")
			}
			if command[i] != '\n' { // which continues the line
				word.WriteByte(command[i])
				in = true
			}
		case c == '#' && !in:
			return nil, errors.New("a comment (#) is in the command")
		case c == '~' && !in, strings.IndexByte("|&;<>()$`", c) >= 0:
			return nil, fmt.Errorf("%q has a meaning for shells, and no shell runs the command: quote it, or run sh -c '... \"$@\"' sh, which is given the rest", c)
		default:
			word.WriteByte(c)
			in = true
		}
	}
	end()
	return words, nil
}

// quoted reads what follows a double quote up to the next, and returns how long that is.
func quoted(word *strings.Builder, rest string) (int, error) {
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; c {
		case '"':
			return i + 1, nil
		case '$', '`':
			return 0, fmt.Errorf("%q has a meaning for shells between double quotes, and no shell runs the command: use single quotes", c)
		case '\\':
			if i+1 < len(rest) && strings.IndexByte("$`\"\\\n", rest[i+1]) >= 0 {
				if i++; rest[i] != '\n' {
					word.WriteByte(rest[i])
				}
				continue
			}
			word.WriteByte(c)
		default:
			word.WriteByte(c)
		}
	}
	return 0, errors.New("a double quote is not closed")
}

// CommandWords splits the command line of a program into words.
func CommandWords(command string) ([]string, error) {
	words, err := Words(command)
	if err != nil {
		return nil, err
	}
	if len(words) == 0 {
		return nil, errors.New("the command is empty")
	}
	if name, _, ok := strings.Cut(words[0], "="); ok && !strings.Contains(name, "/") {
		return nil, fmt.Errorf("%s is a variable, not a program: put it into env", name)
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
