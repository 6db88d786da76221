package tcp

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// vector reads from a socket into several pieces of memory with one system call.
type vector struct{ raw syscall.RawConn }

// newVector returns nil for connections that are not plain sockets, such as those that
// encrypt.
func newVector(nc net.Conn) *vector {
	tc, ok := nc.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tc.SyscallConn()
	if err != nil {
		return nil
	}
	return &vector{raw}
}

// read waits for bytes, as the connection's Read does, deadlines included.
func (v *vector) read(into [][]byte) (n int, err error) {
	waited := v.raw.Read(func(fd uintptr) bool {
		for {
			n, err = unix.Readv(int(fd), into)
			if !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	switch {
	case waited != nil:
		return 0, waited
	case err != nil:
		return 0, os.NewSyscallError("readv", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
