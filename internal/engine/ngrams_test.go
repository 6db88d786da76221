package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// naivePropose is propose by looking at all places, the latest first.
func naivePropose(tokens []uint32, least, most, k int) []uint32 {
	for n := min(most, len(tokens)-1); n >= least; n-- {
		last := tokens[len(tokens)-n:]
		for end := len(tokens) - 1; end >= n; end-- {
			if slices.Equal(tokens[end-n:end], last) {
				all := slices.Clone(tokens)
				for i := range k { // what follows there, and then what was appended here
					all = append(all, all[end+i])
				}
				return all[len(tokens):]
			}
		}
	}
	return nil
}

func checkNgrams(t *testing.T, tokens []uint32, least, most, k, every int, seed uint64) {
	t.Helper()
	x := newNgrams(least, most, seed)
	for n := range len(tokens) + 1 {
		if n%every != 0 && n != len(tokens) {
			continue
		}
		x.extend(tokens[:n])
		if got, want := x.propose(nil, tokens[:n], k), naivePropose(tokens[:n], least, most, k); !slices.Equal(got, want) {
			t.Fatalf("%d- to %d-grams: after %v propose %v, want %v", least, most, tokens[:n], got, want)
		}
	}
}

func TestNgrams(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	found := 0
	for range 300 {
		tokens := make([]uint32, r.IntN(300))
		ids := 1 + r.IntN(1+r.IntN(200))
		for i := range tokens {
			tokens[i] = uint32(r.IntN(ids))
		}
		least := 1 + r.IntN(4)
		most := least + r.IntN(5)
		checkNgrams(t, tokens, least, most, 1+r.IntN(8), 1+r.IntN(3), r.Uint64())
		if naivePropose(tokens, least, most, 1) != nil {
			found++
		}
	}
	if found < 30 || found > 270 {
		t.Errorf("%d of 300 sequences repeat: the test sees one case only", found)
	}
}

func FuzzNgrams(f *testing.F) {
	f.Add([]byte("abcabcabc"), uint8(2), uint8(2), uint8(5))
	f.Add([]byte("aaaaaaaaaaaaaaaa"), uint8(1), uint8(0), uint8(3))
	f.Add([]byte{}, uint8(1), uint8(1), uint8(1))
	f.Add([]byte("the cat sat on the mat, the cat sat"), uint8(3), uint8(3), uint8(8))
	f.Fuzz(func(t *testing.T, text []byte, least, more, k uint8) {
		if len(text) > 500 {
			t.Skip("slow with the naive search")
		}
		tokens := make([]uint32, len(text))
		for i, b := range text {
			tokens[i] = uint32(b)
		}
		checkNgrams(t, tokens, 1+int(least%8), 1+int(least%8)+int(more%8), 1+int(k%32), 1, 7)
	})
}

// A long sequence is taken in, and looked up, in time that does not grow with what
// is there.
func TestNgramsAreFast(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	tokens := make([]uint32, 200_000)
	for i := range tokens {
		tokens[i] = uint32(r.IntN(2)) // the same few n-grams all the time
	}
	begin := time.Now()
	x := newNgrams(2, 8, 3)
	var draft []uint32
	for n := 1; n <= len(tokens); n++ {
		x.extend(tokens[:n])
		draft = x.propose(draft[:0], tokens[:n], 8)
	}
	// Some 60 ms; with a search through the sequence for each token it is minutes.
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
}

func BenchmarkNgrams(b *testing.B) {
	r := rand.New(rand.NewPCG(2, 2))
	tokens := make([]uint32, 100_000)
	for i := range tokens {
		tokens[i] = uint32(r.IntN(150_000))
	}
	b.Run("take in 100k tokens", func(b *testing.B) {
		for b.Loop() {
			newNgrams(2, 4, 3).extend(tokens)
		}
	})
	b.Run("one token and a draft", func(b *testing.B) {
		x := newNgrams(2, 4, 3)
		x.extend(tokens)
		b.ReportAllocs()
		draft := make([]uint32, 0, 8)
		for b.Loop() {
			x.taken--
			x.extend(tokens)
			draft = x.propose(draft[:0], tokens, 5)
		}
	})
}
