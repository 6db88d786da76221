package embedded

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/dynctl/dynctl/internal/host"
)

var (
	// ErrPortInUse is returned when another process listens on the address.
	ErrPortInUse = errors.New("port in use")
	// ErrDir is returned when the data directory cannot be created or written.
	ErrDir = errors.New("data directory not usable")
	// ErrDirInUse is returned when another server has the data directory open.
	ErrDirInUse = errors.New("data directory in use")
	// ErrData is returned when the server refuses to start on the data it finds.
	ErrData = errors.New("data directory not readable by the server")
	// ErrNoSpace is returned when the disk of the data directory is full.
	ErrNoSpace = errors.New("no space left on the disk of the data directory")
	// ErrNotReady is returned when the server did not answer in time.
	ErrNotReady = errors.New("server not ready")
)

// claim checks that the addresses can be listened on and returns them with their ports.
// Port 0 becomes a free port. Another process may take that port before the server
// listens on it.
func claim(addrs ...string) ([]string, error) {
	claimed := make([]string, len(addrs))
	for i, addr := range addrs {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, listenError(addr, err)
		}
		// All listeners stay open until the end; otherwise two addresses could get the
		// same port.
		defer l.Close()
		claimed[i] = l.Addr().String()
	}
	return claimed, nil
}

func listenError(addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen on %s: %w", addr, ErrPortInUse)
	}
	return fmt.Errorf("listen on %s: %w", addr, err)
}

// diskRoom is the free disk space in bytes that a server needs to start. A start that
// fails for lack of space leaks memory.
const diskRoom = 16 << 20

// hasRoom returns ErrNoSpace if the disk of dir has less than diskRoom free.
func hasRoom(dir string) error {
	free, _, err := host.Disk(dir)
	if err == nil && free < diskRoom {
		err = fmt.Errorf("%w: %s: %d MiB are free, a server starts with %d", ErrNoSpace, dir, free>>20, diskRoom>>20)
	}
	return err
}

// dataError classifies the error of a server that did not start on the data in dir. For a
// full disk, both servers return only texts.
func dataError(dir string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
		return fmt.Errorf("%w: %s: %w", ErrNoSpace, dir, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrData, dir, err)
}

// dialable replaces an address that means "every interface" by one that clients can dial.
func dialable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

// prepareDir creates dir and locks it.
func prepareDir(dir string) (*dirLock, error) {
	if dir == "" {
		return nil, fmt.Errorf("%w: no directory given", ErrDir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDir, err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { // another program may have created it
		return nil, fmt.Errorf("%w: %w", ErrDir, err)
	}
	if err := hasRoom(dir); err != nil {
		return nil, err
	}
	return lockDir(dir)
}
