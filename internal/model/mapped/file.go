package mapped

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

var (
	// ErrChanged is returned when a mapped file no longer has the size it was
	// opened with. Its bytes must not be read any more.
	ErrChanged = errors.New("file changed under its mapping")
	// ErrNotRegular is returned for folders, pipes and devices.
	ErrNotRegular = errors.New("not a regular file")
	// ErrPointer is returned for the small text that Git keeps in place of a large file.
	ErrPointer = errors.New("this is a pointer of Git LFS and not the file itself: run 'git lfs pull' in the folder, or download the file")
)

// IsPointer reports whether a file with these first bytes is a pointer of Git LFS.
func IsPointer(begin []byte) bool { return bytes.HasPrefix(begin, pointer) }

var pointer = []byte("version https://git-lfs.github.com/spec/")

// FaultError turns what reading a mapping panicked with into an error that matches
// [ErrChanged], if the goroutine has asked for panics with [debug.SetPanicOnFault]. It
// panics again with everything else.
func FaultError(recovered any) error {
	fault, ok := recovered.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok {
		panic(recovered)
	}
	return fmt.Errorf("%w: it cannot be read at address %#x", ErrChanged, fault.Addr())
}

// File is one open file.
type File struct {
	name  string // base name
	file  *os.File
	size  int64
	mtime time.Time
	data  []byte
	unmap func() error

	closeOnce sync.Once
	closeErr  error
}

// Open opens a regular file and remembers its size. Errors match [ErrNotRegular] or [ErrPointer],
// or come from the system.
func Open(path string) (*File, error) {
	// Looked at before it is opened: opening a named pipe would block.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, ErrNotRegular
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if info, err = file.Stat(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	begin := make([]byte, len(pointer))
	if n, _ := file.ReadAt(begin, 0); IsPointer(begin[:n]) {
		return nil, errors.Join(ErrPointer, file.Close())
	}
	return &File{name: filepath.Base(path), file: file, size: info.Size(), mtime: info.ModTime()}, nil
}

// Map maps the whole file, which must not be empty. It may be called once.
func (f *File) Map() (data []byte, err error) {
	if data, f.unmap, err = mapFile(f.file, f.size); err != nil {
		return nil, fmt.Errorf("map: %w", err)
	}
	f.data = data
	return data, nil
}

// WillNeed asks the system to read the mapping ahead, because all of it will be used
// soon.
func (f *File) WillNeed() {
	if len(f.data) > 0 {
		willNeed(f.data)
	}
}

// Name is the base name of the file.
func (f *File) Name() string { return f.name }

// Rename sets the name that errors and Name give: a link's target may be called
// otherwise than the link.
func (f *File) Rename(name string) { f.name = name }

// Size is the size of the file in bytes when it was opened.
func (f *File) Size() int64 { return f.size }

// Modified is when the file was changed last, as of when it was opened.
func (f *File) Modified() time.Time { return f.mtime }

// ReadAt reads from the file itself, so that a file that shrank is an error and
// not a fault.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.file.ReadAt(p, off) }

// CheckSize returns [ErrChanged] when the file no longer has the size it was
// opened with.
func (f *File) CheckSize() error {
	info, err := f.file.Stat()
	if err != nil {
		return fmt.Errorf("check %s: %w", f.name, err)
	}
	if info.Size() != f.size {
		return fmt.Errorf("check %s: %w: %d bytes when mapped, %d now", f.name, ErrChanged, f.size, info.Size())
	}
	return nil
}

// Close unmaps and closes the file; it may be called twice. Nothing of the mapping
// may be read afterwards.
func (f *File) Close() error {
	f.closeOnce.Do(func() {
		var unmapErr error
		if f.unmap != nil {
			unmapErr = f.unmap()
		}
		f.closeErr = errors.Join(unmapErr, f.file.Close())
	})
	return f.closeErr
}
