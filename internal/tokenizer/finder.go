package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// span is a range of bytes in a text.
type span struct{ start, end int }

// finder locates all matches of a pattern, left to right, not overlapping.
type finder interface {
	// spans appends the matches in s to dst.
	spans(dst []span, s string) ([]span, error)
}

// findMost does what spans does, but may stop after more than most matches.
func findMost(f finder, dst []span, s string, most int) ([]span, error) {
	if slow, ok := f.(regexFinder); ok {
		return slow.most(dst, s, most)
	}
	return f.spans(dst, s)
}

// patternJSON is a pattern in the file: {"String": …} or {"Regex": …}.
type patternJSON struct {
	String *string
	Regex  *string
}

// newFinder compiles a pattern of the file.
func newFinder(raw json.RawMessage) (finder, error) {
	var p patternJSON
	if err := unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("pattern: %w", err)
	}
	switch {
	case p.String != nil && p.Regex == nil:
		if len(*p.String) > patternLimit {
			return nil, fmt.Errorf("%w: pattern of %d bytes, limit %d", ErrTooLarge, len(*p.String), patternLimit)
		}
		return literalFinder(*p.String), nil
	case p.Regex != nil && p.String == nil:
		if sc := knownScanner(*p.Regex); sc != nil {
			return scanFinder{sc}, nil
		}
		if *p.Regex == " {2,}" { // the usual normalizer of T5 and its relatives
			return spacesFinder{}, nil
		}
		return newRegexFinder(*p.Regex)
	}
	return nil, fmt.Errorf(`%w: pattern needs either "String" or "Regex"`, ErrMalformed)
}

// literalFinder finds a fixed text; an empty one is found nowhere.
type literalFinder string

func (f literalFinder) spans(dst []span, s string) ([]span, error) {
	if f == "" {
		return dst, nil
	}
	for at := 0; ; {
		i := strings.Index(s[at:], string(f))
		if i < 0 {
			return dst, nil
		}
		dst = append(dst, span{at + i, at + i + len(f)})
		at += i + len(f)
	}
}

// spacesFinder finds runs of two or more spaces.
type spacesFinder struct{}

func (spacesFinder) spans(dst []span, s string) ([]span, error) {
	for at := 0; ; {
		i := strings.Index(s[at:], "  ")
		if i < 0 {
			return dst, nil
		}
		start := at + i
		for at = start + 2; at < len(s) && s[at] == ' '; at++ {
		}
		dst = append(dst, span{start, at})
	}
}

// scanFinder finds the matches of a scanner.
type scanFinder struct{ scanner }

func (f scanFinder) spans(dst []span, s string) ([]span, error) {
	for i := 0; i < len(s); {
		if end := f.matchAt(s, i); end > i {
			dst = append(dst, span{i, end})
			i = end
			continue
		}
		i += charLen(s[i])
	}
	return dst, nil
}

// classFinder finds single characters of a class.
type classFinder struct {
	ct   *classTable
	want class
}

func (f classFinder) spans(dst []span, s string) ([]span, error) {
	for i := 0; i < len(s); {
		c, n := f.ct.at(s, i)
		if c&f.want != 0 {
			dst = append(dst, span{i, i + n})
		}
		i += n
	}
	return dst, nil
}

// charLen returns the length of the character that starts with b in valid UTF-8.
func charLen(b byte) int {
	switch {
	case b < 0x80:
		return 1
	case b < 0xE0:
		return 2
	case b < 0xF0:
		return 3
	}
	return 4
}
