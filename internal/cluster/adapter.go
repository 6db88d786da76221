package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of the LoRA adapters of one server.
const (
	MaxAdapters    = 256 // that a worker offers
	MaxAdapterName = 256 // bytes
)

// ValidAdapter reports whether an adapter can be offered under a name: one that is short, and has
// no characters that control terminals or lines.
func ValidAdapter(name string) bool {
	return name != "" && len(name) <= MaxAdapterName && utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

// AdapterDigest returns the digest of a model with an adapter: requests for it reach no worker
// that would answer with the base alone.
func AdapterDigest(base, adapter string) string {
	sum := sha256.Sum256([]byte(base + "\x00" + adapter))
	return "lora:" + hex.EncodeToString(sum[:])
}
