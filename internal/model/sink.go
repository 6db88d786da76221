package model

import (
	"errors"
	"os"
	"path/filepath"
)

// sink is the folder into which a checkpoint is written.
type sink string

// create creates a file of the given size. Until Close, parts may be written in any order
// and concurrently.
func (s sink) create(name string, size int64) (*os.File, error) {
	f, err := os.Create(filepath.Join(string(s), name))
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// put writes a whole file.
func (s sink) put(name string, content []byte) error {
	f, err := s.create(name, int64(len(content)))
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	return errors.Join(err, f.Close())
}
