// Package ownerfile writes files that only their owner may read or change. It writes them
// in one step: a reader sees either the whole new content or the old one.
package ownerfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace writes a file. It replaces an existing one.
func Replace(path string, body []byte) error { return write(path, body, os.Rename) }

// Create writes a new file. The error wraps fs.ErrExist if a file exists at the path.
func Create(path string, body []byte) error {
	return write(path, body, os.Link) // unlike a rename, a link replaces nothing
}

func write(path string, body []byte, place func(from, to string) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tmp-") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // already gone after a rename
	_, err = tmp.Write(body)
	if err := errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return place(tmp.Name(), path)
}
