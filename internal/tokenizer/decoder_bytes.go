package tokenizer

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// byteLevelDecoder maps the byte alphabet back and joins everything. A token
// with any other character stands for its own UTF-8.
type byteLevelDecoder struct{}

type byteLevelSink struct {
	next  decodeSink
	bytes byteTail
	begun bool
}

func (byteLevelDecoder) open(next decodeSink, _ bool) decodeSink { return &byteLevelSink{next: next} }

func (byteLevelDecoder) middle(b []byte) []byte {
	if raw, ok := fromAlphabet(string(b)); ok {
		return []byte(raw)
	}
	return b
}

func (k *byteLevelSink) put(s string, first, last bool) {
	if raw, ok := fromAlphabet(s); ok {
		s = raw
	}
	k.next.put(k.bytes.add(s), !k.begun, false)
	k.begun = true
}

func (k *byteLevelSink) close() {
	k.next.put(k.bytes.flush(), !k.begun, true)
	k.next.close()
}

// byteTail turns bytes that arrive in parts into text, holding back an
// incomplete character.
type byteTail struct{ held, out []byte }

func (t *byteTail) add(s string) string {
	if len(t.held) == 0 && utf8.ValidString(s) {
		return s
	}
	t.held = append(t.held, s...)
	out, rest := appendLossy(t.out[:0], t.held, false)
	t.out = out
	t.held = append(t.held[:0], rest...)
	return string(out)
}

func (t *byteTail) flush() string {
	out, _ := appendLossy(t.out[:0], t.held, true)
	t.out, t.held = out, t.held[:0]
	return string(out)
}

// byteFallback turns runs of <0xNN> tokens into text. A run that is not UTF-8
// as a whole becomes one U+FFFD for each of its bytes. While streaming, the
// valid beginning of a run has been shown before that is known: it stays, and
// only the rest of the run is replaced.
type byteFallback struct{}

type byteFallbackSink struct {
	next  decodeSink
	parts tokenParts
	whole bool
	held  []byte // of the run, not yet passed on
	begun bool   // part of the run's token has been passed on
	bad   bool   // the run is known not to be UTF-8
}

func (byteFallback) open(next decodeSink, whole bool) decodeSink {
	return &byteFallbackSink{next: next, whole: whole}
}

func (byteFallback) middle(b []byte) []byte {
	if v, ok := fallbackByte(string(b)); ok {
		return []byte{v}
	}
	return b
}

// fallbackByte reads <0xNN>, with the signs and small letters that the
// reference accepts.
func fallbackByte(s string) (byte, bool) {
	if len(s) != 6 || !strings.HasPrefix(s, "<0x") || s[5] != '>' {
		return 0, false
	}
	v, err := strconv.ParseUint(strings.TrimPrefix(s[3:5], "+"), 16, 8)
	return byte(v), err == nil
}

func (k *byteFallbackSink) put(s string, first, last bool) {
	token, ok := k.parts.add(s, first, last)
	if !ok {
		return
	}
	b, ok := fallbackByte(token)
	if !ok {
		k.endRun()
		k.next.put(token, true, true)
		return
	}
	k.held = append(k.held, b)
	if k.whole {
		return
	}
	for len(k.held) > 0 && !k.bad {
		n, ok, more := firstPart(k.held)
		if more {
			return
		}
		if k.bad = !ok; ok {
			k.next.put(string(k.held[:n]), !k.begun, false)
			k.begun = true
			k.held = append(k.held[:0], k.held[n:]...)
		}
	}
	if k.bad {
		k.replaceHeld()
	}
}

// endRun passes on what is left of a run when another token ends it.
func (k *byteFallbackSink) endRun() {
	switch {
	case k.begun || k.bad || len(k.held) == 0 || !utf8.Valid(k.held):
		k.replaceHeld()
	default:
		k.next.put(string(k.held), true, true)
		k.held = k.held[:0]
	}
	if k.begun {
		k.next.put("", false, true)
	}
	k.begun, k.bad = false, false
}

// replaceHeld passes on a token U+FFFD for each byte held.
func (k *byteFallbackSink) replaceHeld() {
	if k.begun && len(k.held) > 0 {
		k.next.put("", false, true)
		k.begun = false
	}
	for range k.held {
		k.next.put(replacement, true, true)
	}
	k.held = k.held[:0]
}

func (k *byteFallbackSink) close() {
	k.endRun()
	k.next.close()
}

// replaceDecoder replaces a pattern in each token.
type replaceDecoder struct {
	finder  finder
	content string
}

type replaceSink struct {
	replaceDecoder
	next  decodeSink
	parts tokenParts
	held  string // may be the beginning of a match
	begun bool   // first has been passed on for this token
}

func (d replaceDecoder) open(next decodeSink, _ bool) decodeSink {
	return &replaceSink{replaceDecoder: d, next: next}
}

func (d replaceDecoder) middle(b []byte) []byte { return []byte(d.replace(string(b))) }

// replace passes over a pattern timeout: decoding has no way to fail.
func (d replaceDecoder) replace(s string) string {
	if literal, ok := d.finder.(literalFinder); ok && literal != "" {
		return strings.ReplaceAll(s, string(literal), d.content)
	}
	matches, _ := d.finder.spans(nil, s)
	return replaceSpans(s, matches, d.content)
}

func (k *replaceSink) put(s string, first, last bool) {
	literal, ok := k.finder.(literalFinder)
	if !ok || literal == "" || first && last {
		if token, ok := k.parts.add(s, first, last); ok {
			k.next.put(k.replace(token), true, true)
		}
		return
	}
	// A literal in an open token: only what could begin a match must wait.
	s = k.held + s
	k.held = ""
	if !last {
		k.held = prefixSuffix(s[lastMatchEnd(s, string(literal)):], string(literal))
		s = s[:len(s)-len(k.held)]
	}
	k.next.put(k.replace(s), !k.begun, last)
	k.begun = !last
}
func (k *replaceSink) close() { k.next.close() }

// lastMatchEnd returns the end of the last match of pattern in s, matching from the left
// without overlap; 0 if there is none.
func lastMatchEnd(s, pattern string) int {
	end := 0
	for {
		i := strings.Index(s[end:], pattern)
		if i < 0 {
			return end
		}
		end += i + len(pattern)
	}
}

// prefixSuffix returns the longest suffix of s that is a beginning of pattern, shorter
// than pattern itself.
func prefixSuffix(s, pattern string) string {
	for n := min(len(s), len(pattern)-1); n > 0; n-- {
		if strings.HasPrefix(pattern, s[len(s)-n:]) {
			return s[len(s)-n:]
		}
	}
	return ""
}

// stripDecoder removes up to start characters from the beginning and stop from
// the end of each token, as long as they are content.
type stripDecoder struct {
	content     string // one character
	start, stop int
}

type stripSink struct {
	stripDecoder
	next decodeSink
	cut  int // characters that may still be removed at the beginning
	held int // trailing contents not yet passed on, at most stop
}

func (d stripDecoder) open(next decodeSink, _ bool) decodeSink {
	return &stripSink{stripDecoder: d, next: next}
}

func (d stripDecoder) middle(b []byte) []byte { return b }

func (k *stripSink) put(s string, first, last bool) {
	if first {
		k.cut, k.held = k.start, 0
	}
	for k.cut > 0 && s != "" {
		rest, ok := strings.CutPrefix(s, k.content)
		if !ok {
			k.cut = 0
			break
		}
		s, k.cut = rest, k.cut-1
	}
	if s != "" {
		body := s
		trailing := 0
		for strings.HasSuffix(body, k.content) && (trailing < k.stop) {
			body = body[:len(body)-len(k.content)]
			trailing++
		}
		if body == "" { // nothing but contents: what exceeds stop is certain
			k.held += trailing
			s = strings.Repeat(k.content, max(0, k.held-k.stop))
			k.held = min(k.held, k.stop)
		} else {
			s = strings.Repeat(k.content, k.held) + body
			k.held = trailing
		}
	}
	k.next.put(s, first, last)
}
func (k *stripSink) close() { k.next.close() }
