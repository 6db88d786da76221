package posix

import (
	"fmt"
	"os"
	"strings"

	"github.com/dynctl/dynctl/internal/nixl"
)

// File is an open file, to be registered as nixl.FILE.
type File struct {
	f        *os.File
	size     int64
	writable bool
}

var _ nixl.FileMemory = (*File)(nil)

// Open opens a file by NIXL's words for it: "ro" or "rw", then any of ",sync" (writes
// return when they are on the disk), ",noatime" (reads leave no time of access) and
// ",create", then ":" and the path. ",direct" is refused with ErrNotSupported. size is how
// many bytes may be named, from the start on; 0 is no bound. Writing behind the end makes
// the file longer.
func Open(spec string, size int64) (*File, error) {
	sp, err := parseSpec(spec)
	if err != nil {
		return nil, err
	}
	if size < 0 {
		return nil, fmt.Errorf("open %q: %d bytes: %w", sp.path, size, nixl.ErrInvalidParam)
	}
	f, err := os.OpenFile(sp.path, sp.flags, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open file: %w: %w", err, nixl.ErrBackend)
	}
	return &File{f, size, sp.writable}, nil
}

// Bytes implements nixl.Memory: files are not addressed but read and written.
func (f *File) Bytes() []byte { return nil }

// FD is the file descriptor.
func (f *File) FD() int { return int(f.f.Fd()) }

// Size is how many bytes may be named; 0 is no bound.
func (f *File) Size() int64 { return f.size }

// Writable reports whether the file may be written.
func (f *File) Writable() bool { return f.writable }

// Close closes the file. Its region must be deregistered.
func (f *File) Close() error { return f.f.Close() }

// spec says how to open which file.
type spec struct {
	path     string
	flags    int
	writable bool
}

func parseSpec(s string) (spec, error) {
	fail := func(why string, st nixl.Status) (spec, error) {
		return spec{}, fmt.Errorf("file %.80q: %s, want ro or rw, options, a colon and a path: %w", s, why, st)
	}
	words, path, found := strings.Cut(s, ":")
	if !found || path == "" {
		return fail("no path", nixl.ErrInvalidParam)
	}
	if strings.ContainsRune(path, 0) {
		return fail("zero byte in the path", nixl.ErrInvalidParam)
	}
	sp := spec{path: path}
	mode, options, more := strings.Cut(words, ",")
	switch mode {
	case "ro":
		sp.flags = os.O_RDONLY
	case "rw":
		sp.flags, sp.writable = os.O_RDWR, true
	default:
		return fail("unknown mode", nixl.ErrInvalidParam)
	}
	if !more {
		return sp, nil
	}
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "sync":
			sp.flags |= os.O_SYNC
		case "create":
			sp.flags |= os.O_CREATE
		case "noatime":
			sp.flags |= noatime
		case "direct":
			return fail("direct input and output is not supported", nixl.ErrNotSupported)
		default:
			return fail("unknown option", nixl.ErrInvalidParam)
		}
	}
	return sp, nil
}
