package gpucheck

import "golang.org/x/sys/unix"

// freeBytes is how much a file system has room for.
func freeBytes(path string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * s.Bsize, nil
}
