package engine

import "slices"

// ngrams finds where the last tokens of a growing sequence stood before. It keeps a
// table for each length n from min to max, in which every n-gram leads to the end of
// its latest occurrence: a look-up costs a few steps for each length, and so does a
// new token, however long the sequence is.
type ngrams struct {
	min, max int
	seed     uint64 // unknown to those who send prompts, so that they cannot make hashes collide
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

// extend takes in all n-grams of the sequence after which a token is known.
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

// find returns what followed the latest occurrence of the longest n-gram that the
// sequence ends with and that was there before: the position of the token after it,
// and n. It returns zeros when there is none. extend has taken in the sequence.
func (x *ngrams) find(tokens []uint32) (next, n int) {
	h := x.seed
	for i := 1; i <= min(x.max, len(tokens)); i++ {
		h = mix64(h ^ uint64(tokens[len(tokens)-i]))
		if i < x.min {
			continue
		}
		end := x.tables[i-x.min].get(tokens, len(tokens), i, h)
		if end == 0 {
			break // what is not there cannot be there with more before it
		}
		next, n = end, i
	}
	return next, n
}

// propose appends up to k tokens that are likely to follow the sequence to dst: those
// that followed the latest occurrence of its last tokens. Where these run into the
// end of the sequence, the sequence repeats itself, and so do they.
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

// get returns the latest end of the n-gram before end; 0 when there is none.
func (t *ngramTable) get(tokens []uint32, end, n int, h uint64) int {
	if len(t.ends) == 0 {
		return 0
	}
	return int(t.ends[t.slot(tokens, end, n, h)])
}

// slot is the place of the n-gram before end, or where it would be put.
func (t *ngramTable) slot(tokens []uint32, end, n int, h uint64) int {
	mask := len(t.ends) - 1
	gram := tokens[end-n : end]
	for i := int(h) & mask; ; i = (i + 1) & mask {
		if e := int(t.ends[i]); e == 0 || slices.Equal(tokens[e-n:e], gram) {
			return i
		}
	}
}
