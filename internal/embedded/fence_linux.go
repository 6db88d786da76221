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

// fence takes the open files below dir away from a server that does not stop: it
// redirects their descriptors to nothing. That releases their locks, so that another
// server can start on the data, and the old one can no longer write to it. The lock of
// the directory itself stays.
//
// It must be called when the server is stuck, not while it opens and closes files: if a
// descriptor is reused meanwhile, another file is lost.
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
		// A mapped file stays open in the kernel, with its lock. Descriptors that are not
		// files cannot be locked, so errors are ignored.
		_ = unix.Flock(fd, unix.LOCK_UN)
		if err := unix.Dup3(int(null.Fd()), fd, unix.O_CLOEXEC); err != nil {
			return fmt.Errorf("take %s away: %w", to, err)
		}
	}
	return nil
}

// hangUp closes all connections to addr, host:port, that this process has accepted.
// Otherwise clients of a failed server would keep using them.
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
		// Only sockets have a name, and only connected ones a peer.
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
