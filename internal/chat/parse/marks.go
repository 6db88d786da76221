package parse

import "strings"

// marks finds the first of several strings in a text that is read byte by byte.
// None of them is the beginning of another.
type marks struct {
	list []string
	held []byte // the beginning of one of them
}

// put reads a byte. It appends to dst what cannot belong to a mark any more, and
// returns which mark is complete, or -1.
func (m *marks) put(dst []byte, b byte) (free []byte, hit int) {
	m.held = append(m.held, b)
	for len(m.held) > 0 {
		for i, mark := range m.list {
			if len(mark) < len(m.held) || mark[:len(m.held)] != string(m.held) {
				continue
			}
			if len(mark) == len(m.held) {
				m.held = m.held[:0]
				return dst, i
			}
			return dst, -1
		}
		dst = append(dst, m.held[0])
		m.held = append(m.held[:0], m.held[1:]...)
	}
	return dst, -1
}

// release appends what is held back.
func (m *marks) release(dst []byte) []byte {
	dst = append(dst, m.held...)
	m.held = m.held[:0]
	return dst
}

// verdict is the result of reading one more byte of a structure.
type verdict uint8

const (
	more   verdict = iota // it goes on
	done                  // it ends with this byte
	before                // it had ended before this byte
	bad                   // it is none
)

// expect reads one of several strings, with white space before and in it left out.
type expect struct{ got []byte }

// put returns which of the wanted strings is complete, with done.
func (e *expect) put(b byte, wanted ...string) (int, verdict) {
	if space(b) {
		return -1, more
	}
	e.got = append(e.got, b)
	for i, w := range wanted {
		if w == string(e.got) {
			e.got = e.got[:0]
			return i, done
		}
	}
	for _, w := range wanted {
		if strings.HasPrefix(w, string(e.got)) {
			return -1, more
		}
	}
	return -1, bad
}

func space(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }
