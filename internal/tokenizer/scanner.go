package tokenizer

import "strings"

// scanner is a hand-written matcher for one of the split patterns in wide use.
// They are the hot path of encoding: several times as fast as a regular
// expression engine, and linear in the text.
type scanner interface {
	// matchAt returns the end of the pattern's match that begins exactly at
	// s[i], or -1.
	matchAt(s string, i int) int
}

// The contraction part of the patterns, spelled two ways.
const (
	foldedContractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	casedContractions  = `(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])`
	o200kWord1         = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	o200kWord2         = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`
	spaceTail          = `|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// knownScanner returns the scanner for a pattern, or nil when the pattern needs
// the regular expression engine. Patterns are compared as text, after spelling
// literal line breaks as escapes (DeepSeek's file has them raw).
func knownScanner(pattern string) scanner {
	ct := classes()
	switch strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(pattern) {
	case `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
		`'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`:
		return gpt2Scanner{ct}
	case foldedContractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*` + spaceTail:
		return wordScanner{ct, clLetter, 3, true}
	case foldedContractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*` + spaceTail:
		return wordScanner{ct, clLetter, 1, true}
	case casedContractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*` + spaceTail:
		return wordScanner{ct, clLetter, 1, false}
	case foldedContractions + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*` + spaceTail:
		return wordScanner{ct, clLetter | clMark, 1, true}
	case o200kWord1 + foldedContractions + `?|` + o200kWord2 + foldedContractions +
		`?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*` + spaceTail:
		return caseScanner{ct, 3, true}
	case o200kWord1 + `|` + o200kWord2 + `|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*` + spaceTail:
		return caseScanner{ct, 1, false}
	case "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" +
		`|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*` + spaceTail:
		return deepseekScanner{ct}
	case `\p{N}{1,3}`:
		return runScanner{ct, clNumber, 3}
	case `\p{N}`:
		return runScanner{ct, clNumber, 1}
	case `\p{N}+`:
		return runScanner{ct, clNumber, 0}
	case "[一-龥\u3040-ゟ゠-ヿ]+":
		return cjkScanner{}
	}
	return nil
}

// gpt2Scanner is GPT-2's pattern, also the built-in one of ByteLevel.
type gpt2Scanner struct{ ct *classTable }

func (g gpt2Scanner) matchAt(s string, i int) int {
	if s[i] == '\'' {
		if n := contraction(s[i:], false); n > 0 {
			return i + n
		}
	}
	j := i
	if s[j] == ' ' {
		j++
	}
	if j < len(s) {
		switch c, n := g.ct.at(s, j); {
		case c&clLetter != 0:
			return g.ct.run(s, j+n, clLetter)
		case c&clNumber != 0:
			return g.ct.run(s, j+n, clNumber)
		case c&clSpace == 0:
			return g.ct.runOutside(s, j+n, clSpace|clLetter|clNumber)
		}
	}
	_, _, last, end := spaceRun(g.ct, s, i)
	return withoutLast(s, i, last, end)
}

// wordScanner is the family of cl100k, Llama 3 and Qwen.
type wordScanner struct {
	ct      *classTable
	letters class // what words are made of
	digits  int   // longest run of digits
	fold    bool  // contractions in the Unicode case folding sense
}

func (w wordScanner) matchAt(s string, i int) int {
	c, n := w.ct.at(s, i)
	if c&w.letters != 0 {
		return w.ct.run(s, i+n, w.letters)
	}
	if s[i] == '\'' {
		if n := contraction(s[i:], true); n > 0 && (w.fold || s[i+1] < 0x80) {
			return i + n
		}
	}
	if c&clNumber != 0 {
		return digitRun(w.ct, s, i+n, w.digits-1)
	}
	if c&clNewline == 0 {
		if j := i + n; j < len(s) {
			if c, n := w.ct.at(s, j); c&w.letters != 0 {
				return w.ct.run(s, j+n, w.letters)
			}
		}
	}
	if end := symbolRun(w.ct, s, i, clSpace|clNumber|w.letters, false); end > 0 {
		return end
	}
	return spaceTailAt(w.ct, s, i)
}

// symbolRun matches ` ?[^unwanted]+[\r\n]*`, with / in the last class if slash.
func symbolRun(ct *classTable, s string, i int, unwanted class, slash bool) int {
	if s[i] == ' ' {
		i++
	}
	end := ct.runOutside(s, i, unwanted)
	if end == i {
		return -1
	}
	for end < len(s) && (s[end] == '\r' || s[end] == '\n' || slash && s[end] == '/') {
		end++
	}
	return end
}

// digitRun extends a run of digits from s[i] by at most limit characters.
func digitRun(ct *classTable, s string, i, limit int) int {
	for ; limit > 0 && i < len(s); limit-- {
		c, n := ct.at(s, i)
		if c&clNumber == 0 {
			break
		}
		i += n
	}
	return i
}

// contraction returns the length of the contraction s begins with, or 0.
// Folding adds capitals and the long s, which case folding takes for an s.
func contraction(s string, fold bool) int {
	if len(s) < 2 {
		return 0
	}
	low := func(b byte) byte {
		if fold && b >= 'A' && b <= 'Z' {
			b |= 0x20
		}
		return b
	}
	switch low(s[1]) {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if len(s) > 2 && low(s[2]) == 'e' {
			return 3
		}
	case 'l':
		if len(s) > 2 && low(s[2]) == 'l' {
			return 3
		}
	case 0xC5: // U+017F, long s
		if fold && len(s) > 2 && s[2] == 0xBF {
			return 3
		}
	}
	return 0
}

// spaceRun looks at the whitespace from s[i]: afterBreak is the position after
// its last CR or LF (0 if none), last the start of its last character.
func spaceRun(ct *classTable, s string, i int) (n, afterBreak, last, end int) {
	for end = i; end < len(s); n++ {
		c, size := ct.at(s, end)
		if c&clSpace == 0 {
			break
		}
		last = end
		end += size
		if c&clNewline != 0 {
			afterBreak = end
		}
	}
	return n, afterBreak, last, end
}

// spaceTailAt matches `\s*[\r\n]+|\s+(?!\S)|\s+`.
func spaceTailAt(ct *classTable, s string, i int) int {
	n, afterBreak, last, end := spaceRun(ct, s, i)
	switch {
	case n == 0:
		return -1
	case afterBreak > 0:
		return afterBreak
	}
	return withoutLast(s, i, last, end)
}

// withoutLast matches `\s+(?!\S)|\s+` given the run: a run before other text
// leaves its last character to that text.
func withoutLast(s string, i, last, end int) int {
	switch {
	case end == i:
		return -1
	case end < len(s) && last > i:
		return last
	}
	return end
}
