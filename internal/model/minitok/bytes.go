package minitok

// Byte-level BPE writes each byte as one printable character: printable Latin-1
// bytes stand for themselves, the others are moved to U+0100 and up. The byte
// tokens have the first ids, in order of their characters.

// byteRunes maps a byte to its character.
func byteRunes() (runes [256]rune) {
	next := rune(0x100)
	for b := range runes {
		if isPrintable(b) {
			runes[b] = rune(b)
		} else {
			runes[b] = next
			next++
		}
	}
	return runes
}

func isPrintable(b int) bool {
	return b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE
}

// byteOrder lists the 256 byte values in the order of their token ids.
func byteOrder() []byte {
	order := make([]byte, 0, 256)
	for _, printable := range []bool{true, false} {
		for b := range 256 {
			if isPrintable(b) == printable {
				order = append(order, byte(b))
			}
		}
	}
	return order
}

// Encode writes text in the byte alphabet, as tokens are spelled in a vocabulary.
func Encode(text string) string {
	runes := byteRunes()
	out := make([]rune, 0, len(text))
	for i := range len(text) {
		out = append(out, runes[text[i]])
	}
	return string(out)
}

// decode is the inverse of Encode.
func decode(token string) string {
	bytes := make(map[rune]byte, 256)
	for b, r := range byteRunes() {
		bytes[r] = byte(b)
	}
	out := make([]byte, 0, len(token))
	for _, r := range token {
		out = append(out, bytes[r])
	}
	return string(out)
}
