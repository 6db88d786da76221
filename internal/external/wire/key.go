package wire

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// maxKey bounds the file of an API key, in bytes.
const maxKey = 16 << 10

// keyFile is an API key in a file. The key is read again when the file changes. The text of a
// key is in no error and no log.
type keyFile struct {
	path string

	mu   sync.Mutex
	read time.Time // modification time of what was read
	size int64
	key  string
}

// get returns the key; empty without a file.
func (k *keyFile) get() (string, error) {
	if k.path == "" {
		return "", nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	info, err := os.Stat(k.path)
	if err != nil {
		return "", fmt.Errorf("API key: %w", err)
	}
	if k.key != "" && info.ModTime().Equal(k.read) && info.Size() == k.size {
		return k.key, nil
	}
	key, err := readKey(k.path)
	if err != nil {
		return "", fmt.Errorf("API key: %w", err)
	}
	k.key, k.read, k.size = key, info.ModTime(), info.Size()
	return key, nil
}

func readKey(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxKey+1))
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(b))
	switch {
	case len(b) > maxKey:
		return "", fmt.Errorf("%s is longer than %d bytes", path, maxKey)
	case key == "":
		return "", fmt.Errorf("%s is empty", path)
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", errors.New(path + " has more than one line, or characters that no key has")
	}
	return key, nil
}
