package model

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
)

// sampleBytes is the size of each of the two ends of a weight file that enter the digest.
// Hashing a large file whole would take seconds.
const sampleBytes = 64 << 10

// digest identifies a checkpoint. It is the SHA-256 of the weight index and, for a
// folder, of config.json and tokenizer.json. A GGUF file is the source of its small
// files, so these do not enter: another version of this program may derive them
// differently.
func digest(files []File, set weightSet) (string, error) {
	h := sha256.New()
	if _, whole := set.(fileSet); !whole {
		for _, name := range []string{ConfigName, TokenizerName} {
			part(h, []byte(name))
			part(h, find(files, name))
		}
	}
	if err := set.Fingerprint(h); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Fingerprint writes the weight index: each weight file's name, size, first and last 64
// KiB, and each tensor's name, type, shape and offset. Each part is preceded by its
// length, so that different checkpoints cannot give the same bytes.
func (s folderSet) Fingerprint(w io.Writer) error {
	for _, f := range s.Files() {
		part(w, fmt.Appendf(nil, "%s %d", f.Name(), f.Size()))
		for _, t := range f.Tensors() {
			part(w, fmt.Appendf(nil, "%q %s %v %d", t.Name, t.DType, t.Shape, t.Offset))
		}
		n := min(sampleBytes, f.Size())
		for _, at := range []int64{0, f.Size() - n} {
			sample := make([]byte, n)
			if _, err := io.ReadFull(io.NewSectionReader(f, at, n), sample); err != nil {
				return fmt.Errorf("digest %s: %w", f.Name(), err)
			}
			part(w, sample)
		}
	}
	return nil
}

func part(h io.Writer, content []byte) {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(content)))
	_, _ = h.Write(n[:]) // a hash never fails
	_, _ = h.Write(content)
}
