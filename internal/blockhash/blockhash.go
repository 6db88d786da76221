// Package blockhash computes the chained hashes that identify KV blocks.
//
// A [Chain] holds the local and sequence hashes of the full blocks of one token
// sequence; it grows as the sequence grows. The functions are pure and a Chain
// belongs to one goroutine. The package does not know who holds which block.
//
// The scheme is Dynamo's (lib/kv-hashing): the local hash of a block is XXH3-64
// over its tokens as little-endian u32 with a seed of 1337; the sequence hash of
// the first block is its local hash and that of every later block is XXH3-64 over
// the previous sequence hash and its local hash, both little-endian u64, with the
// same seed. A trailing block that is not full has no hash.
//
// Positions that hold embeddings in place of tokens, such as those of an image, are told
// apart by a [Media]: to the tokens of a block that it touches its range within the block
// and its key are appended. Dynamo appends sorted 64-bit hashes of the images alone, so that
// two images in another order or of another shape can have one hash.
package blockhash

import (
	"encoding/binary"
	"slices"

	"github.com/zeebo/xxh3"
)

// Local returns the hash of one full block of tokens.
func Local(tokens []uint32, seed uint64) uint64 { return local(tokens, seed, nil, 0) }

// local is Local of a block that begins at position first of a sequence with media.
func local(tokens []uint32, seed uint64, media []Media, first int) uint64 {
	var stack [128 * 4]byte
	buf := stack[:0]
	if 4*len(tokens) > len(stack) {
		buf = make([]byte, 0, 4*len(tokens))
	}
	for _, t := range tokens {
		buf = binary.LittleEndian.AppendUint32(buf, t)
	}
	for i := range media {
		buf = media[i].within(buf, first, len(tokens))
	}
	return xxh3.HashSeed(buf, seed)
}

// AdapterSeed returns the seed of the hashes of blocks that a LoRA adapter computes: the same
// tokens have other KV with each adapter. Without a name it is the seed of the base model.
func AdapterSeed(seed uint64, adapter string) uint64 {
	if adapter == "" {
		return seed
	}
	return seed + xxh3.HashString(adapter)
}

// Key identifies the embeddings of a [Media]: whatever gives other embeddings, another
// content, another way to prepare it or another number of rows, has another key.
type Key [16]byte

// IsZero reports whether k names nothing.
func (k Key) IsZero() bool { return k == Key{} }

// Media says that the positions [Start, End) of a sequence hold the embeddings named by Key
// in place of those of tokens.
type Media struct {
	Start, End int
	Key        Key
}

// within appends what the hash of the block of n positions that begins at first says of m.
func (m *Media) within(buf []byte, first, n int) []byte {
	from, to := max(m.Start-first, 0), min(m.End-first, n)
	if from >= to {
		return buf
	}
	buf = binary.LittleEndian.AppendUint32(buf, uint32(from))
	buf = binary.LittleEndian.AppendUint32(buf, uint32(to))
	return append(buf, m.Key[:]...)
}

// Next returns the sequence hash of a block that follows the block with sequence
// hash prev.
func Next(prev, local, seed uint64) uint64 {
	var buf [16]byte
	binary.LittleEndian.PutUint64(buf[:8], prev)
	binary.LittleEndian.PutUint64(buf[8:], local)
	return xxh3.HashSeed(buf[:], seed)
}

// Chain holds the hashes of the full blocks of a token sequence.
type Chain struct {
	BlockSize int
	Seed      uint64
	// Media are the parts of the sequence without tokens, in order of position.
	Media []Media
	// Local and Seq have one entry for each full block hashed so far.
	Local []uint64
	Seq   []uint64
}

// Extend hashes the full blocks of tokens that are not hashed yet. tokens must
// start with the tokens of earlier calls.
func (c *Chain) Extend(tokens []uint32) {
	if more := len(tokens)/c.BlockSize - len(c.Seq); more > 0 {
		c.Local, c.Seq = slices.Grow(c.Local, more), slices.Grow(c.Seq, more)
	}
	for i := len(c.Seq); (i+1)*c.BlockSize <= len(tokens); i++ {
		local := local(tokens[i*c.BlockSize:(i+1)*c.BlockSize], c.Seed, c.Media, i*c.BlockSize)
		seq := local
		if i > 0 {
			seq = Next(c.Seq[i-1], local, c.Seed)
		}
		c.Local = append(c.Local, local)
		c.Seq = append(c.Seq, seq)
	}
}
