package embedded

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// fence takes the open files below dir away from a server that does not end: its
// descriptors lead nowhere from now on. Their locks end, so that another server
// can start on the data, and the old one cannot write there any more. The lock of the
// directory itself stays with its owner.
//
// It must be called when the server is stuck, not while it opens and closes files: a
// descriptor that became another file's in the meantime would be lost to that.
func fence(dir string, keep *dirLock) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("take files away: %w", err)
	}
	defer null.Close()
	const own = "/proc/self/fd"
	entries, err := os.ReadDir(own)
	if err != nil {
		return fmt.Errorf("take files away: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		to, err := os.Readlink(filepath.Join(own, e.Name()))
		if err != nil || to != dir && !strings.HasPrefix(to, dir+string(filepath.Separator)) || keep.has(fd) {
			continue
		}
		// A file that is mapped stays open for the system, and locked. Not all can be locked.
		_ = unix.Flock(fd, unix.LOCK_UN)
		if err := unix.Dup3(int(null.Fd()), fd, unix.O_CLOEXEC); err != nil {
			return fmt.Errorf("take %s away: %w", to, err)
		}
	}
	return nil
}

// hangUp ends all connections to addr, host:port, that this process has accepted: clients
// of a server that has failed would go on asking it.
func hangUp(addr string) {
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// What is no socket has no name, and what only listens no peer.
		if at, err := unix.Getsockname(fd); err != nil || portOf(at) != port {
			continue
		}
		if _, err := unix.Getpeername(fd); err == nil {
			_ = unix.Shutdown(fd, unix.SHUT_RDWR)
		}
	}
}

func portOf(a unix.Sockaddr) int {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return a.Port
	case *unix.SockaddrInet6:
		return a.Port
	}
	return 0
}
