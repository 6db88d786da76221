package pda

import (
	"cmp"
	"slices"
	"unicode/utf8"
)

// joinRanges sorts ranges and joins those that touch.
func joinRanges(in []Range) []Range {
	slices.SortFunc(in, func(a, b Range) int { return cmp.Compare(a.Lo, b.Lo) })
	out := in[:0]
	for _, r := range in {
		if n := len(out); n > 0 && r.Lo <= out[n-1].Hi+1 {
			out[n-1].Hi = max(out[n-1].Hi, r.Hi)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// complement expects and returns normalized ranges.
func complement(in []Range) []Range {
	var gaps []Range
	next := rune(0)
	for _, r := range in {
		if r.Lo > next {
			gaps = append(gaps, Range{next, r.Lo - 1})
		}
		next = r.Hi + 1
	}
	if next <= utf8.MaxRune {
		gaps = append(gaps, Range{next, utf8.MaxRune})
	}
	return normalize(gaps)
}

// Intersect returns the code points in both of two sorted lists of ranges.
func Intersect(a, b []Range) []Range {
	var out []Range
	for i, j := 0, 0; i < len(a) && j < len(b); {
		if lo, hi := max(a[i].Lo, b[j].Lo), min(a[i].Hi, b[j].Hi); lo <= hi {
			out = append(out, Range{lo, hi})
		}
		if a[i].Hi < b[j].Hi {
			i++
		} else {
			j++
		}
	}
	return out
}

// byteRange is the bytes lo to hi, both included.
type byteRange struct{ lo, hi byte }

// utf8Sequences calls emit with sequences of byte ranges that together match the
// UTF-8 forms of r exactly. emit must not keep the slice.
func utf8Sequences(r Range, emit func([]byteRange)) {
	// Each length of the encoding by itself.
	for _, last := range [...]rune{0x7F, 0x7FF, 0xFFFF, utf8.MaxRune} {
		if r.Lo > last {
			continue
		}
		if hi := min(r.Hi, last); r.Lo <= hi {
			splitSequence(r.Lo, hi, emit)
		}
		if r.Lo = last + 1; r.Lo > r.Hi {
			return
		}
	}
}

// splitSequence cuts lo..hi, of one encoded length, at the borders of its trailing
// bytes until every byte position is a range of its own.
func splitSequence(lo, hi rune, emit func([]byteRange)) {
	var a, b [utf8.UTFMax]byte
	n := utf8.EncodeRune(a[:], lo)
	for i := 1; i < n; i++ {
		low := rune(1)<<(6*i) - 1 // the code points that share all but the last i bytes
		if lo&^low == hi&^low {
			continue
		}
		if lo&low != 0 {
			splitSequence(lo, lo|low, emit)
			splitSequence((lo|low)+1, hi, emit)
			return
		}
		if hi&low != low {
			splitSequence(lo, hi&^low-1, emit)
			splitSequence(hi&^low, hi, emit)
			return
		}
	}
	utf8.EncodeRune(b[:], hi)
	var ranges [utf8.UTFMax]byteRange
	for i := range n {
		ranges[i] = byteRange{a[i], b[i]}
	}
	emit(ranges[:n])
}
