package blockhash

import "testing"

// chain hashes all full blocks of tokens.
func chain(tokens []uint32, blockSize int, seed uint64) Chain {
	c := Chain{BlockSize: blockSize, Seed: seed}
	c.Extend(tokens)
	return c
}

// The vectors were published with Dynamo's kv-hashing: block size 4, seed 1337.
func TestPublishedVectors(t *testing.T) {
	tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}
	c := chain(tokens, 4, 1337)
	wantLocal := []uint64{14643705804678351452, 16777012769546811212, 483935686894639516}
	wantSeq := []uint64{14643705804678351452, 4945711292740353085, 12583592247330656132}
	if len(c.Seq) != 3 {
		t.Fatalf("full blocks = %d, want 3 (the partial block has no hash)", len(c.Seq))
	}
	for i := range wantSeq {
		if c.Local[i] != wantLocal[i] {
			t.Errorf("local[%d] = %d, want %d", i, c.Local[i], wantLocal[i])
		}
		if c.Seq[i] != wantSeq[i] {
			t.Errorf("seq[%d] = %d, want %d", i, c.Seq[i], wantSeq[i])
		}
	}
}

func TestExtendInPieces(t *testing.T) {
	tokens := make([]uint32, 1000)
	for i := range tokens {
		tokens[i] = uint32(i * i)
	}
	whole := chain(tokens, 64, 1337)
	grown := Chain{BlockSize: 64, Seed: 1337}
	for n := 0; n <= len(tokens); n += 7 {
		grown.Extend(tokens[:n])
	}
	grown.Extend(tokens)
	for i := range whole.Seq {
		if whole.Seq[i] != grown.Seq[i] {
			t.Fatalf("block %d: grown %d, whole %d", i, grown.Seq[i], whole.Seq[i])
		}
	}
	if other := chain(tokens, 64, 1338); other.Seq[0] == whole.Seq[0] {
		t.Error("another seed gives the same hash")
	}
}

// A prompt is hashed into memory of the size that it needs.
func TestExtendAllocatesOnce(t *testing.T) {
	tokens := make([]uint32, 10_000)
	if n := testing.AllocsPerRun(10, func() { chain(tokens, 16, 1337) }); n > 2 {
		t.Errorf("%v allocations for two lists of hashes", n)
	}
}

// Blocks that differ in what stands in place of their tokens have different hashes, and
// those before it, and without any, have the hashes of tokens alone.
func TestMedia(t *testing.T) {
	tokens := make([]uint32, 16) // of which many are placeholders
	a, b := Key{1}, Key{15: 1}
	hashes := func(media ...Media) Chain {
		c := Chain{BlockSize: 4, Seed: 1337, Media: media}
		c.Extend(tokens)
		return c
	}
	cases := [][]Media{
		nil,
		{{4, 8, a}}, {{4, 8, b}}, {{4, 7, a}}, {{5, 8, a}}, // content and range
		{{4, 6, a}, {6, 8, b}}, {{4, 6, b}, {6, 8, a}}, // order
		{{4, 6, a}, {6, 8, a}},
		{{4, 5, a}, {7, 8, a}}, {{4, 5, a}, {6, 7, a}}, // literal placeholders between
	}
	seen := map[uint64]int{}
	plain := hashes()
	for i, media := range cases {
		c := hashes(media...)
		if c.Seq[0] != plain.Seq[0] {
			t.Errorf("%d: the block before has another hash", i)
		}
		if c.Local[2] != plain.Local[2] || (c.Seq[2] == plain.Seq[2]) != (i == 0) {
			t.Errorf("%d: the block behind: local %x, sequence %x", i, c.Local[2], c.Seq[2])
		}
		if was, ok := seen[c.Local[1]]; ok {
			t.Errorf("%v and %v have one hash", cases[was], media)
		}
		seen[c.Local[1]] = i
	}
	if long, short := hashes(Media{2, 10, a}), hashes(Media{2, 9, a}); long.Seq[1] != short.Seq[1] || long.Seq[2] == short.Seq[2] {
		t.Error("a part over several blocks counts where it differs alone")
	}
}
