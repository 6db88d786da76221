//go:build linux

package fenced

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// place identifies the surroundings of a process that decide which processes can share memory with
// it. Two processes of one place have the same kernel, see each other's abstract
// sockets and process ids, and run as the same user.
type place struct {
	boot   string // the kernel's boot id
	netNS  string // "net:[4026531840]"
	pidNS  string
	userID uint32
}

func here() (place, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return place{}, err
	}
	p := place{boot: strings.TrimSpace(string(boot)), userID: uint32(os.Geteuid())}
	if p.netNS, err = os.Readlink("/proc/self/ns/net"); err != nil {
		return place{}, err
	}
	p.pidNS, err = os.Readlink("/proc/self/ns/pid")
	return p, err
}

// reaches reports why processes of the two places cannot share memory.
func (p place) reaches(o place) error {
	switch {
	case p.boot != o.boot:
		return fmt.Errorf("peer is on another machine: %w", nixl.ErrNotSupported)
	case p.netNS != o.netNS:
		return fmt.Errorf("peer is in another network namespace: %w", nixl.ErrNotSupported)
	case p.pidNS != o.pidNS:
		return fmt.Errorf("peer is in another namespace of processes: %w", nixl.ErrNotSupported)
	case p.userID != o.userID:
		return fmt.Errorf("peer runs as user %d, this process as %d: %w", o.userID, p.userID, nixl.ErrNotSupported)
	}
	return nil
}

// connInfo is this transport's part of the metadata blob.
type connInfo struct {
	place
	token  secret
	socket string // name of the abstract socket
	offer  []byte // of the method
}

type secret = wire.Secret

const connVersion = 4 // from 4 on, connections begin with a handshake

func (c connInfo) encode() []byte {
	b := append([]byte{connVersion}, c.token[:]...)
	b = binary.LittleEndian.AppendUint32(b, c.userID)
	for _, s := range []string{c.boot, c.netNS, c.pidNS, c.socket, string(c.offer)} {
		b = wire.AppendString(b, s)
	}
	return b
}

func parseConnInfo(b []byte) (connInfo, error) {
	var c connInfo
	fail := fmt.Errorf("connection data of %d bytes: %w", len(b), nixl.ErrMismatch)
	if len(b) < 1+len(c.token)+4 || b[0] != connVersion {
		return c, fail
	}
	b = b[1:]
	b = b[copy(c.token[:], b):]
	c.userID = binary.LittleEndian.Uint32(b)
	b = b[4:]
	var offer string
	rest, ok := wire.TakeStrings(b, &c.boot, &c.netNS, &c.pidNS, &c.socket, &offer)
	if !ok || len(rest) > 0 || !strings.HasPrefix(c.socket, "@") || len(c.socket) < 2 || len(c.socket) > 100 {
		return connInfo{}, fail
	}
	c.offer = []byte(offer)
	return c, nil
}

// process is the other end of a connection.
type process struct {
	pid   int
	pidfd int
}

// peerProcess identifies the process at the other end of a unix socket and checks
// that it runs as the same user.
func peerProcess(sock int) (process, error) {
	cred, err := unix.GetsockoptUcred(sock, unix.SOL_SOCKET, unix.SO_PEERCRED)
	switch {
	case err != nil:
		return process{}, os.NewSyscallError("getsockopt SO_PEERCRED", err)
	case cred.Uid != uint32(os.Geteuid()):
		return process{}, fmt.Errorf("process %d runs as user %d: %w", cred.Pid, cred.Uid, nixl.ErrNotAllowed)
	case cred.Pid <= 0:
		return process{}, fmt.Errorf("process of the peer is not visible: %w", nixl.ErrNotAllowed)
	}
	// From Linux 6.5 on, without the chance that the id was used again.
	fd, err := unix.GetsockoptInt(sock, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		fd, err = unix.PidfdOpen(int(cred.Pid), 0)
	}
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return process{}, fmt.Errorf("process %d is gone: %w", cred.Pid, nixl.ErrRemoteDisconnect)
	}
	if err != nil {
		return process{}, os.NewSyscallError("pidfd_open", err)
	}
	unix.CloseOnExec(fd)
	return process{pid: int(cred.Pid), pidfd: fd}, nil
}

// gone reports whether the process has ended, all its threads included: it has no
// memory any more.
func (p process) gone() bool {
	fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&unix.POLLIN != 0
}

func (p process) close() {
	if p.pidfd > 0 {
		_ = unix.Close(p.pidfd)
	}
}

// usable reports why this system cannot share memory.
func usable() error {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	_ = unix.Close(fd)
	fs, _, err := newFences(1)
	if err != nil {
		return err
	}
	return fs.close()
}
