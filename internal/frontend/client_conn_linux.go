package frontend

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// gone holds the poll events of a socket that was reset, or closed on both sides.
const gone = unix.POLLHUP | unix.POLLERR

// halfClosed reports whether the peer has shut down its side of a connection that is, as
// far as is known, otherwise intact.
func halfClosed(c net.Conn) bool {
	raw := rawConn(c)
	if raw == nil {
		return false
	}
	var events int16
	err := raw.Control(func(fd uintptr) { events = poll(fd) })
	return err == nil && events&unix.POLLRDHUP != 0 && events&gone == 0
}

// waitReset waits until the peer resets the connection. It returns an error when the read
// deadline passes or the connection is closed.
func waitReset(c net.Conn) error {
	raw := rawConn(c)
	if raw == nil {
		return errNoSocket
	}
	// Between two looks it sleeps until something happens to the socket.
	return raw.Read(func(fd uintptr) bool { return poll(fd)&gone != 0 })
}

var errNoSocket = errors.New("the connection is not a TCP socket")

func rawConn(c net.Conn) interface {
	Control(func(uintptr)) error
	Read(func(uintptr) bool) error
} {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// poll returns the pending events of a socket.
func poll(fd uintptr) int16 {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}} // #nosec G115 -- descriptors are small
	for {
		if _, err := unix.Poll(fds, 0); !errors.Is(err, unix.EINTR) {
			return fds[0].Revents
		}
	}
}
