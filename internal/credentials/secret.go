package credentials

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dynctl/dynctl/internal/ownerfile"
)

// Secret is what all programs of one cluster share: whoever has it belongs to the
// cluster. The zero Secret is none.
type Secret struct{ b [secretLen]byte }

const secretLen = 32

// New returns a random secret.
func New() (s Secret) {
	_, _ = rand.Read(s.b[:]) // never fails
	return s
}

// IsZero reports whether s is no secret.
func (s Secret) IsZero() bool { return s == Secret{} }

// Key derives the key for one purpose with HKDF-SHA256 (RFC 5869): 32 bytes. Keys of
// different purposes tell nothing of each other nor of the secret.
func (s Secret) Key(purpose string) []byte {
	key, err := hkdf.Key(sha256.New, s.b[:], nil, "dynctl/1/"+purpose, 32)
	if err != nil {
		panic(err) // only for lengths that nobody asks for
	}
	return key
}

// Fingerprint names the secret without giving it away: 16 hex digits.
func (s Secret) Fingerprint() string { return hex.EncodeToString(s.Key("fingerprint")[:8]) }

// String is the fingerprint, so that a secret that is printed by mistake stays one.
func (s Secret) String() string {
	if s.IsZero() {
		return "no secret"
	}
	return "secret " + s.Fingerprint()
}

// GoString keeps %#v from printing the bytes.
func (s Secret) GoString() string { return s.String() }

// Encode returns the secret as text: 64 hex digits.
func (s Secret) Encode() string { return hex.EncodeToString(s.b[:]) }

// Decode reads what Encode wrote. Errors do not repeat the text.
func Decode(text string) (s Secret, err error) {
	b, err := hex.DecodeString(strings.TrimSpace(text))
	if err != nil || len(b) != secretLen {
		return Secret{}, fmt.Errorf("not a cluster secret: want %d hex digits", 2*secretLen)
	}
	copy(s.b[:], b)
	if s.IsZero() {
		return Secret{}, errors.New("not a cluster secret: all zeros")
	}
	return s, nil
}

// Load reads the secret in a file. A file that others than its owner may read is
// refused: what they have read is no secret. The error wraps [fs.ErrNotExist] where
// there is no file.
func Load(path string) (Secret, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Secret{}, fmt.Errorf("read the cluster's secret: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return Secret{}, fmt.Errorf("read the cluster's secret: %s may be read by others (mode %04o): chmod 600 it, or make a new secret if others have read it", path, info.Mode().Perm())
	}
	body, err := os.ReadFile(path)
	if err != nil {
		return Secret{}, fmt.Errorf("read the cluster's secret: %w", err)
	}
	s, err := Decode(string(body))
	if err != nil {
		return Secret{}, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
}

// LoadOrCreate reads the secret in a file, and makes one where there is no file. Of
// several programs that make one at a time all get the same.
func LoadOrCreate(path string) (Secret, error) {
	s, err := Load(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	return Create(path, New())
}

// Create writes a secret into a new file, for its owner only, and returns the one that
// is in the file: that of somebody who was faster, if somebody was.
func Create(path string, s Secret) (Secret, error) {
	if err := write(path, s, ownerfile.Create); err != nil && !errors.Is(err, fs.ErrExist) {
		return Secret{}, err
	}
	return Load(path)
}

// Replace writes a secret into a file, for its owner only, whatever is there.
func Replace(path string, s Secret) error { return write(path, s, ownerfile.Replace) }

func write(path string, s Secret, file func(path string, body []byte) error) error {
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = file(path, []byte(s.Encode()+"\n"))
	}
	if err != nil {
		return fmt.Errorf("write the cluster's secret: %w", err)
	}
	return nil
}
