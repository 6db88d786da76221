package events

import (
	"fmt"
	"strings"
)

// checkSubject accepts subjects to publish on: tokens between dots, without blanks,
// control characters or wildcards.
func checkSubject(subject string) error { return checkTokens(subject, false) }

// checkPattern accepts subjects with the wildcards "*" and, at the end, ">".
func checkPattern(pattern string) error { return checkTokens(pattern, true) }

func checkTokens(s string, wildcards bool) error {
	rest, more := s, true
	for more {
		var token string
		token, rest, more = strings.Cut(rest, ".")
		switch {
		case token == "":
			return fmt.Errorf("%w %q: empty token", ErrSubject, s)
		case token == "*" || token == ">":
			if !wildcards || token == ">" && more {
				return fmt.Errorf("%w %q: wildcard", ErrSubject, s)
			}
		case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '*' || r == '>' }):
			return fmt.Errorf("%w %q: token %q", ErrSubject, s, token)
		}
	}
	return nil
}

// matches reports whether a subject matches a pattern.
func matches(pattern, subject string) bool {
	for {
		p, prest, pmore := strings.Cut(pattern, ".")
		s, srest, smore := strings.Cut(subject, ".")
		switch {
		case p == ">":
			return true
		case p != "*" && p != s, pmore != smore:
			return false
		case !pmore:
			return true
		}
		pattern, subject = prest, srest
	}
}

// topicOf returns the last token of a subject.
func topicOf(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }
