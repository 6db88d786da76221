package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// byteAlphabet is GPT-2's mapping from bytes to printable characters: printable
// Latin-1 stands for itself, every other byte is 256 plus its rank among the
// unprintable ones.
var byteAlphabet = func() (a [256]rune) {
	n := rune(0)
	for b := range 256 {
		switch {
		case b >= '!' && b <= '~', b >= 0xA1 && b <= 0xAC, b >= 0xAE:
			a[b] = rune(b)
		default:
			a[b] = 256 + n
			n++
		}
	}
	return a
}()

// alphabetBytes is the inverse of byteAlphabet; -1 marks characters outside.
var alphabetBytes = func() (inv [324]int16) {
	for i := range inv {
		inv[i] = -1
	}
	for b, r := range byteAlphabet {
		inv[r] = int16(b)
	}
	return inv
}()

// toAlphabet spells every byte of s with its character of the byte alphabet.
func toAlphabet(s string) string {
	var b strings.Builder
	b.Grow(len(s) + len(s)/4)
	for i := range len(s) {
		b.WriteRune(byteAlphabet[s[i]])
	}
	return b.String()
}

// fromAlphabet is the inverse of toAlphabet; ok is false when s has a character
// outside the alphabet.
func fromAlphabet(s string) (raw string, ok bool) {
	plain := true
	for _, r := range s {
		if int(r) >= len(alphabetBytes) || alphabetBytes[r] < 0 {
			return "", false
		}
		plain = plain && r < utf8.RuneSelf
	}
	if plain { // printable ASCII stands for itself
		return s, true
	}
	out := make([]byte, 0, len(s))
	for _, r := range s {
		out = append(out, byte(alphabetBytes[r]))
	}
	return string(out), true
}
