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

// Secret is shared by all programs of one cluster. Anyone with the secret belongs to the
// cluster. The zero Secret means that there is none.
type Secret struct{ b [secretLen]byte }

const secretLen = 32

// New returns a random secret.
func New() (s Secret) {
	_, _ = rand.Read(s.b[:]) // never fails
	return s
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s == Secret{} }

// Key derives the key for one purpose with HKDF-SHA256 (RFC 5869): 32 bytes. Keys of
// different purposes reveal nothing about each other or the secret.
func (s Secret) Key(purpose string) []byte {
	key, err := hkdf.Key(sha256.New, s.b[:], nil, "dynctl/1/"+purpose, 32)
	if err != nil {
		panic(err) // only for lengths that are never used here
	}
	return key
}

// Fingerprint identifies the secret without revealing it: 16 hex digits.
func (s Secret) Fingerprint() string { return hex.EncodeToString(s.Key("fingerprint")[:8]) }

// String returns the fingerprint, so that a secret printed by mistake stays secret.
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

// Decode reads the text that Encode returned. Errors do not repeat the text.
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

// Load reads the secret from a file. It refuses a file that other users may read, because
// such a secret may be known to them, unless root lent it to this user's group. The error wraps [fs.ErrNotExist] if there is no
// file.
func Load(path string) (Secret, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Secret{}, fmt.Errorf("read the cluster's secret: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 && !lent(info) {
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

// Create writes a secret to a new file that only its owner may read. It returns the
// secret in the file: another one if another program created the file first.
func Create(path string, s Secret) (Secret, error) {
	if err := write(path, s, ownerfile.Create); err != nil && !errors.Is(err, fs.ErrExist) {
		return Secret{}, err
	}
	return Load(path)
}

// Replace writes a secret to a file that only its owner may read, replacing an existing
// one.
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
