package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// AddedToken is a token that is matched in the text as a whole, before the model reads
// it.
type AddedToken struct {
	ID      uint32
	Content string
	// SingleWord rejects a match next to a word character.
	SingleWord bool
	// LStrip and RStrip let a match swallow the whitespace before or after.
	LStrip, RStrip bool
	// Normalized matches the token's normalized form in the normalized text. Otherwise
	// the token is matched in the raw text.
	Normalized bool
	// Special tokens can be left out on decode.
	Special bool
}

// addedMatcher finds a set of added tokens: leftmost first, longest there.
type addedMatcher struct {
	trie   *byteTrie
	tokens []*AddedToken
	starts [256]bool // bytes a token can begin with
	only   int       // the single such byte, or -1
}

func newAddedMatcher() *addedMatcher {
	return &addedMatcher{trie: newByteTrie(), only: -1}
}

// add registers a token under the text it is found by. Of tokens with equal
// text the first one added wins. An empty text, which a normalizer can leave,
// is never found.
func (m *addedMatcher) add(text string, token *AddedToken) {
	if text == "" {
		return
	}
	m.trie.insert(text, int32(len(m.tokens)))
	m.tokens = append(m.tokens, token)
	if len(m.tokens) == 1 {
		m.only = int(text[0])
	} else if m.only != int(text[0]) {
		m.only = -1
	}
	m.starts[text[0]] = true
}

// find returns the first match at or after from, or a nil token.
func (m *addedMatcher) find(s string, from int) (start, end int, token *AddedToken) {
	if len(m.tokens) == 0 {
		return 0, 0, nil
	}
	for i := from; i < len(s); i++ {
		if m.only >= 0 {
			skip := strings.IndexByte(s[i:], byte(m.only))
			if skip < 0 {
				break
			}
			i += skip
		} else if !m.starts[s[i]] {
			continue
		}
		if n, v := m.trie.longest(s[i:]); n > 0 {
			return i, i + n, m.tokens[v]
		}
	}
	return 0, 0, nil
}

// cut calls yield for each part of s in order: a match with its token, or the
// text between with a nil token, until it returns false. An empty s has no parts.
func (m *addedMatcher) cut(s string, yield func(start, end int, token *AddedToken) bool) {
	done := 0     // end of the text handed out
	spaceEnd := 0 // end of the whitespace swallowed last
	for next := 0; ; {
		start, end, token := m.find(s, next)
		if token == nil {
			break
		}
		next = end // not after swallowed whitespace, which can hold a token itself
		if token.SingleWord && (endsInWord(s[:start]) || startsWithWord(s[end:])) {
			continue
		}
		if token.LStrip {
			if done < start {
				start = done + len(strings.TrimRightFunc(s[done:start], unicode.IsSpace))
			} else {
				start = done
			}
		}
		if token.RStrip {
			if end >= spaceEnd { // else the run is known: a match inside swallowed whitespace
				spaceEnd = len(s) - len(strings.TrimLeftFunc(s[end:], unicode.IsSpace))
			}
			end = spaceEnd
		}
		if done < start && !yield(done, start, nil) || !yield(start, end, token) {
			return
		}
		done = end
	}
	if done < len(s) {
		yield(done, len(s), nil)
	}
}

func startsWithWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return s != "" && classes().of(r)&clWord != 0
}

func endsInWord(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return s != "" && classes().of(r)&clWord != 0
}
