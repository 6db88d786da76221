package tokenizer

import "unicode/utf8"

// caseScanner is the family of o200k and Tekken: words are cut where a capital
// follows a small letter.
type caseScanner struct {
	ct          *classTable
	digits      int
	contraction bool // words keep a contraction that follows
}

func (k caseScanner) matchAt(s string, i int) int {
	c, n := k.ct.at(s, i)
	prefix := c&(clNewline|clLetter|clNumber) == 0 // may stand before the word
	word := c&(clUpper|clLower) != 0               // may begin it
	end := -1
	// The order of the alternatives and of their backtracking.
	if prefix {
		end = k.lowerWord(s, i+n)
	}
	if end < 0 && word {
		end = k.lowerWord(s, i)
	}
	if end < 0 && prefix {
		end = k.upperWord(s, i+n)
	}
	if end < 0 && word {
		end = k.upperWord(s, i)
	}
	switch {
	case end >= 0:
		if k.contraction && end < len(s) && s[end] == '\'' {
			end += contraction(s[end:], true)
		}
		return end
	case c&clNumber != 0:
		return digitRun(k.ct, s, i+n, k.digits-1)
	}
	if end := symbolRun(k.ct, s, i, clSpace|clLetter|clNumber, true); end > 0 {
		return end
	}
	return spaceTailAt(k.ct, s, i)
}

// lowerWord matches upper*lower+ at s[i]. When no small letter follows, the
// engine gives back characters until one that is in both classes can stand for
// the small letter; that ends the match, since what follows is only upper.
func (k caseScanner) lowerWord(s string, i int) int {
	both := -1
	for i < len(s) {
		c, n := k.ct.at(s, i)
		if c&clUpper == 0 {
			if c&clLower != 0 {
				return k.ct.run(s, i+n, clLower)
			}
			break
		}
		i += n
		if c&clLower != 0 {
			both = i
		}
	}
	return both
}

// upperWord matches upper+lower* at s[i], where lowerWord has failed.
func (k caseScanner) upperWord(s string, i int) int {
	end := k.ct.run(s, i, clUpper)
	if end == i {
		return -1
	}
	return k.ct.run(s, end, clLower)
}

// deepseekScanner is the third pattern of DeepSeek V3. It leaves gaps: digits
// and control characters belong to no match.
type deepseekScanner struct{ ct *classTable }

func (d deepseekScanner) matchAt(s string, i int) int {
	c, n := d.ct.at(s, i)
	if c&clASCIIPunct != 0 {
		j := i + 1
		for j < len(s) && (s[j]|0x20 >= 'a' && s[j]|0x20 <= 'z') {
			j++
		}
		if j > i+1 {
			return j
		}
	}
	if c&(clLetter|clMark) != 0 {
		return d.ct.run(s, i+n, clLetter|clMark)
	}
	if c&(clNewline|clPunct|clSymbol) == 0 {
		if end := d.ct.run(s, i+n, clLetter|clMark); end > i+n {
			return end
		}
	}
	j := i
	if s[j] == ' ' {
		j++
	}
	if end := d.ct.run(s, j, clPunct|clSymbol); end > j {
		for end < len(s) && (s[end] == '\r' || s[end] == '\n') {
			end++
		}
		return end
	}
	return spaceTailAt(d.ct, s, i)
}

// runScanner matches a run of characters of one class, of at most limit
// characters if limit is not 0.
type runScanner struct {
	ct    *classTable
	want  class
	limit int
}

func (r runScanner) matchAt(s string, i int) int {
	end := i
	for n := 0; end < len(s) && (r.limit == 0 || n < r.limit); n++ {
		c, size := r.ct.at(s, end)
		if c&r.want == 0 {
			break
		}
		end += size
	}
	if end == i {
		return -1
	}
	return end
}

// cjkScanner matches runs of ideographs and kana, DeepSeek V3's second pattern.
type cjkScanner struct{}

func (cjkScanner) matchAt(s string, i int) int {
	end := i
	for end < len(s) && s[end] >= 0xE3 && s[end] <= 0xE9 {
		r, n := utf8.DecodeRuneInString(s[end:])
		if (r < 0x4E00 || r > 0x9FA5) && (r < 0x3040 || r > 0x30FF) {
			break
		}
		end += n
	}
	if end == i {
		return -1
	}
	return end
}
