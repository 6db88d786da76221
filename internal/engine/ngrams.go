package engine

import "slices"

// ngrams finds earlier occurrences of the last tokens of a growing sequence. For each
// length n from min to max it has a table that maps every n-gram to the end of its latest
// occurrence. A look-up and a new token both cost a few operations for each length,
// however long the sequence is.
type ngrams struct {
	min, max int
	seed     uint64 // secret from senders of prompts, so that they cannot make hashes collide
	tables   []ngramTable
	taken    int // n-grams that end at or before this many tokens are in the tables
}

// ngramTable is an open hash table of ends: ends[i] > 0 stands for the n-gram before
// that position. Keys are not stored, they are in the sequence.
type ngramTable struct {
	ends []int32
	used int
}

func newNgrams(least, most int, seed uint64) *ngrams {
	return &ngrams{min: least, max: most, seed: seed, tables: make([]ngramTable, most-least+1)}
}

// extend adds all n-grams of the sequence that have a following token.
func (x *ngrams) extend(tokens []uint32) {
	for ; x.taken+1 < len(tokens); x.taken++ {
		end := x.taken + 1
		h := x.seed
		for n := 1; n <= min(x.max, end); n++ {
			h = mix64(h ^ uint64(tokens[end-n]))
			if n >= x.min {
				x.put(tokens, end, n, h)
			}
		}
	}
}

// find looks up the longest n-gram that the sequence ends with and that occurred before.
// It returns the position of the token after that earlier occurrence, and n; or zeros
// when there is none. The caller has called extend with the sequence.
func (x *ngrams) find(tokens []uint32) (next, n int) {
	h := x.seed
	for i := 1; i <= min(x.max, len(tokens)); i++ {
		h = mix64(h ^ uint64(tokens[len(tokens)-i]))
		if i < x.min {
			continue
		}
		end := x.tables[i-x.min].get(tokens, len(tokens), i, h)
		if end == 0 {
			break // without this n-gram no longer one can be found
		}
		next, n = end, i
	}
	return next, n
}

// propose appends up to k likely next tokens of the sequence to dst: the tokens that
// followed the latest occurrence of its last tokens. If these reach the end of the
// sequence, the sequence repeats itself, and propose continues with the repetition.
func (x *ngrams) propose(dst, tokens []uint32, k int) []uint32 {
	next, n := x.find(tokens)
	if n == 0 {
		return dst
	}
	from := len(dst)
	for i := range k {
		if at := next + i; at < len(tokens) {
			dst = append(dst, tokens[at])
		} else {
			dst = append(dst, dst[from+at-len(tokens)])
		}
	}
	return dst
}

// put makes end the latest occurrence of the n-gram before it, whose hash is h.
func (x *ngrams) put(tokens []uint32, end, n int, h uint64) {
	t := &x.tables[n-x.min]
	if 3*(t.used+1) > 2*len(t.ends) {
		x.grow(tokens, n)
	}
	i := t.slot(tokens, end, n, h)
	if t.ends[i] == 0 {
		t.used++
	}
	t.ends[i] = int32(end)
}

// grow doubles the table of n-grams.
func (x *ngrams) grow(tokens []uint32, n int) {
	t := &x.tables[n-x.min]
	old := t.ends
	t.ends = make([]int32, max(2*len(old), 64))
	for _, end := range old {
		if end > 0 {
			h := x.seed
			for i := 1; i <= n; i++ {
				h = mix64(h ^ uint64(tokens[int(end)-i]))
			}
			t.ends[t.slot(tokens, int(end), n, h)] = end
		}
	}
}

// get returns the latest end of the n-gram before end, or 0 when there is none.
func (t *ngramTable) get(tokens []uint32, end, n int, h uint64) int {
	if len(t.ends) == 0 {
		return 0
	}
	return int(t.ends[t.slot(tokens, end, n, h)])
}

// slot returns the index of the n-gram before end, or the free index where it belongs.
func (t *ngramTable) slot(tokens []uint32, end, n int, h uint64) int {
	mask := len(t.ends) - 1
	gram := tokens[end-n : end]
	for i := int(h) & mask; ; i = (i + 1) & mask {
		if e := int(t.ends[i]); e == 0 || slices.Equal(tokens[e-n:e], gram) {
			return i
		}
	}
}
