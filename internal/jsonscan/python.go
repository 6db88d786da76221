package jsonscan

import "bytes"

// FromPython returns a text with the numbers as JSON knows them that Python writes beyond it:
// NaN becomes null, and the infinities become numbers near the largest of float64. A text
// without them is returned as it is.
func FromPython(text []byte) []byte {
	if !bytes.Contains(text, []byte("NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return text
	}
	out := make([]byte, 0, len(text)+64)
	inside := false // a string
	for i := 0; i < len(text); i++ {
		b := text[i]
		switch {
		case inside && b == '\\' && i+1 < len(text):
			out = append(out, b)
			i++
			b = text[i]
		case b == '"':
			inside = !inside
		case inside:
		case bytes.HasPrefix(text[i:], []byte("NaN")):
			out = append(out, "null"...)
			i += len("NaN") - 1
			continue
		case bytes.HasPrefix(text[i:], []byte("Infinity")):
			out = append(out, "1e308"...)
			i += len("Infinity") - 1
			continue
		}
		out = append(out, b)
	}
	return out
}
