//go:build unix

package credentials

import (
	"io/fs"
	"os"
	"syscall"
)

// lent reports whether a file is one of root's that root gave this user's group to read, as
// Kubernetes mounts a Secret for a process of another user. Nobody else may read it.
func lent(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && s.Uid == 0 && os.Geteuid() != 0 && info.Mode().Perm()&0o037 == 0
}
