// Package ownerfile writes files that only their owner may read or change, in one step:
// whoever reads one finds all of what was written, or what was there before.
package ownerfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace writes a file, whatever is at the path.
func Replace(path string, body []byte) error { return write(path, body, os.Rename) }

// Create writes a new file. The error wraps fs.ErrExist if there is one at the path.
func Create(path string, body []byte) error {
	return write(path, body, os.Link) // which, unlike a rename, replaces nothing
}

func write(path string, body []byte, place func(from, to string) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tmp-") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // is gone already if it was renamed
	_, err = tmp.Write(body)
	if err := errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return place(tmp.Name(), path)
}
