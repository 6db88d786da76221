package tokenizer

import (
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/dlclark/regexp2"
)

const (
	// patternLimit bounds the length of a regular expression, in bytes; the
	// longest known one (DeepSeek V2) has about 1,500.
	patternLimit = 1 << 16
	// matchTimeout bounds one step from match to match. A step may scan a whole text on a
	// busy machine, so the bound is generous. Catastrophic backtracking still exceeds it.
	matchTimeout = time.Second
	// textTimeoutPerByte bounds all matches of one text together, on top of
	// matchTimeout: some ten times what the engine usually needs. textTimeout is the
	// most that any text gets.
	textTimeoutPerByte = 10 * time.Microsecond
	textTimeout        = 5 * time.Second
)

// regexFinder finds the matches of a regular expression in the dialect of
// Oniguruma, the engine the file format assumes.
type regexFinder struct{ re *regexp2.Regexp }

func newRegexFinder(pattern string) (finder, error) {
	if len(pattern) > patternLimit {
		return nil, fmt.Errorf("%w: pattern of %d bytes, limit %d", ErrTooLarge, len(pattern), patternLimit)
	}
	translated, err := translateRegex(pattern)
	if err != nil {
		return nil, fmt.Errorf("%w: compile %q: %w", ErrPattern, pattern, err)
	}
	re, err := regexp2.Compile(translated, regexp2.Multiline)
	if err != nil {
		return nil, fmt.Errorf("%w: compile %q: %w", ErrPattern, pattern, err)
	}
	re.MatchTimeout = matchTimeout
	return regexFinder{re}, nil
}

func (f regexFinder) spans(dst []span, s string) ([]span, error) {
	return f.most(dst, s, math.MaxInt)
}

// most does what spans does, but stops after more than most matches.
func (f regexFinder) most(dst []span, s string, most int) ([]span, error) {
	if s == "" {
		return dst, nil
	}
	deadline := time.Now().Add(min(f.re.MatchTimeout+time.Duration(len(s))*textTimeoutPerByte, textTimeout))
	begin := len(dst)
	m, err := f.re.FindStringMatch(s)
	// The engine counts in characters, the caller in bytes.
	char, at := 0, 0
	advance := func(to int) int {
		for ; char < to; char++ {
			at += charLen(s[at])
		}
		return at
	}
	last := -1 // end of the previous match
	for n := 0; m != nil && err == nil; n++ {
		start, end := advance(m.Index), advance(m.Index+m.Length)
		if end > start || start != last { // an empty match right after a match does not count
			dst = append(dst, span{start, end})
			last = end
			if len(dst)-begin > most {
				return dst, nil
			}
		}
		if n%yieldEvery == 0 {
			runtime.Gosched()
		}
		if n&0xFF == 0 && time.Now().After(deadline) {
			return dst, fmt.Errorf("%w: %q on %d bytes", ErrPatternTimeout, f.re.String(), len(s))
		}
		m, err = f.re.FindNextMatch(m)
	}
	if err != nil {
		return dst, fmt.Errorf("%w: %q on %d bytes: %w", ErrPatternTimeout, f.re.String(), len(s), err)
	}
	return dst, nil
}
