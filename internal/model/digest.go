package model

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"

	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// sampleBytes is how much of both ends of a weight file enters the digest: the
// whole file would take seconds for a large model.
const sampleBytes = 64 << 10

// digest identifies a checkpoint: SHA-256 over config.json, tokenizer.json and the
// weight index, which is each weight file's name, size, first and last 64 KiB, and
// each tensor's name, type, shape and offset. Every part is preceded by its
// length, so that no two checkpoints run together into the same bytes.
func digest(files []File, set *safetensors.Set) (string, error) {
	h := sha256.New()
	for _, name := range []string{ConfigName, TokenizerName} {
		part(h, []byte(name))
		part(h, find(files, name))
	}
	for _, f := range set.Files() {
		part(h, fmt.Appendf(nil, "%s %d", f.Name(), f.Size()))
		for _, t := range f.Tensors() {
			part(h, fmt.Appendf(nil, "%q %s %v %d", t.Name, t.DType, t.Shape, t.Offset))
		}
		n := min(sampleBytes, f.Size())
		for _, at := range []int64{0, f.Size() - n} {
			sample := make([]byte, n)
			if _, err := io.ReadFull(io.NewSectionReader(f, at, n), sample); err != nil {
				return "", fmt.Errorf("digest %s: %w", f.Name(), err)
			}
			part(h, sample)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func part(h hash.Hash, content []byte) {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(content)))
	h.Write(n[:]) // a hash never fails
	h.Write(content)
}
