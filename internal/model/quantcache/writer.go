package quantcache

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Writer makes one file.
type Writer struct {
	path   string // of the file when it is finished
	file   *os.File
	header *header
	fault  faults
	closed bool
}

// faults lets tests fail a step: it is called with the name of each before the step is
// done. Nil does nothing.
type faults func(step string) error

func (f faults) check(step string) error {
	if f == nil {
		return nil
	}
	return f(step)
}

// Create begins the file at path, in a folder that is made if it is missing. All of the
// room that it needs is taken at once where the system allows that: a disk that is too
// full is an error here. The Writer must be committed or aborted.
func Create(path string, c Contents) (*Writer, error) { return create(path, c, nil) }

func create(path string, c Contents, fault faults) (_ *Writer, err error) {
	h, err := newHeader(c)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	w := &Writer{path: path, header: h, fault: fault}
	defer func() {
		if err != nil {
			w.Abort()
			err = fmt.Errorf("create %s: %w", path, err)
		}
	}()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if w.file, err = os.CreateTemp(filepath.Dir(path), filepath.Base(path)+tmpMark+"*"); err != nil {
		return nil, err
	}
	if err = fault.check("reserve"); err == nil {
		err = reserve(w.file, w.Size())
	}
	if err != nil {
		return nil, fmt.Errorf("take %d bytes: %w", w.Size(), err)
	}
	return w, nil
}

// tmpMark is in the names of files that are not finished.
const tmpMark = ".tmp-"

// Size is that of the finished file, in bytes.
func (w *Writer) Size() int64 { return w.header.dataStart + w.header.size }

// Fill writes a tensor, by its index in [Contents]. quantize makes rows, counted over
// all dimensions but the last: dst has the size of rows rows from first on. It is called
// by several goroutines at once, for not much more than 1 MiB each.
func (w *Writer) Fill(ctx context.Context, tensor int, quantize func(dst []byte, first, rows int) error) error {
	h := w.header
	from, to := h.first[tensor], h.first[tensor+1]
	buffers := make([][]byte, workers())
	err := inParallel(ctx, to-from, func(worker, i int) error {
		p := h.pieces[from+i]
		if int64(len(buffers[worker])) < p.bytes {
			buffers[worker] = make([]byte, p.bytes)
		}
		dst := buffers[worker][:p.bytes]
		if err := quantize(dst, p.row, p.rows); err != nil {
			return err
		}
		h.sums[from+i] = crc32.Checksum(dst, castagnoli)
		err := w.fault.check("write")
		if err == nil {
			_, err = w.file.WriteAt(dst, h.dataStart+p.at)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("write %s: tensor %s: %w", w.path, h.Tensors[tensor].Name, err)
	}
	return nil
}

// Commit puts the file in its place when all tensors are filled, and waits until it is
// on the disk. Whatever it returns, the Writer is done.
func (w *Writer) Commit() error {
	defer w.Abort()
	if err := w.commit(); err != nil {
		return fmt.Errorf("write %s: %w", w.path, err)
	}
	return nil
}

func (w *Writer) commit() error {
	head, err := w.header.encode()
	if err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"header", func() error { _, err := w.file.WriteAt(head, 0); return err }},
		{"sync", w.file.Sync},
		{"close", func() error { w.closed = true; return w.file.Close() }},
		{"rename", func() error { return os.Rename(w.file.Name(), w.path) }},
	} {
		if err := w.fault.check(step.name); err != nil {
			return err
		}
		if err := step.do(); err != nil {
			return err
		}
	}
	syncFolder(filepath.Dir(w.path))
	return nil
}

// Abort removes what was written, unless it was committed. It may be called twice.
func (w *Writer) Abort() {
	if w.file == nil {
		return
	}
	if !w.closed {
		w.closed = true
		_ = w.file.Close() // it goes
	}
	_ = os.Remove(w.file.Name()) // once it is renamed there is nothing of that name
	w.file = nil
}

// syncFolder brings a rename to the disk. Where folders cannot be synced a power cut may
// take the file away, which is no harm.
func syncFolder(dir string) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	_ = d.Sync()
	_ = d.Close()
}

// RemoveLeftovers deletes what processes left behind that died while they wrote the
// file at path: all of it for the holder of the file's lock, else what is older than a
// day.
func RemoveLeftovers(path string, locked bool) error {
	entries, err := os.ReadDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !strings.HasPrefix(e.Name(), filepath.Base(path)+tmpMark) || !locked && time.Since(info.ModTime()) < 24*time.Hour {
			continue
		}
		errs = append(errs, os.Remove(filepath.Join(filepath.Dir(path), e.Name())))
	}
	return errors.Join(errs...)
}
