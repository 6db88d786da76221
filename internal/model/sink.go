package model

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// sink receives the files of a checkpoint that is being written.
type sink interface {
	// create starts a file of the given size; parts may be written in any order
	// and at the same time, until Close.
	create(name string, size int64) (sinkFile, error)
}

type sinkFile interface {
	io.WriterAt
	io.Closer
}

// put writes a whole file.
func put(to sink, name string, content []byte) error {
	f, err := to.create(name, int64(len(content)))
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	return errors.Join(err, f.Close())
}

// dirSink writes files into a folder.
type dirSink string

func (d dirSink) create(name string, size int64) (sinkFile, error) {
	f, err := os.Create(filepath.Join(string(d), name))
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// memorySink keeps files by name.
type memorySink map[string][]byte

func (m memorySink) create(name string, size int64) (sinkFile, error) {
	m[name] = make([]byte, size)
	return memoryFile(m[name]), nil
}

type memoryFile []byte

func (f memoryFile) WriteAt(p []byte, off int64) (int, error) {
	if n := copy(f[off:], p); n < len(p) {
		return n, io.ErrShortWrite
	}
	return len(p), nil
}

func (f memoryFile) Close() error { return nil }
