//go:build !linux

package quantcache

import "os"

// reserve gives a file its size; a disk that is too full shows later.
func reserve(f *os.File, size int64) error { return f.Truncate(size) }
