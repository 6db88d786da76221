package gpucheck

import "golang.org/x/sys/unix"

// freeBytes returns the free space of a file system, in bytes.
func freeBytes(path string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * s.Bsize, nil
}
