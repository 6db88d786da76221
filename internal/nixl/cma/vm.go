//go:build linux

package cma

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/fenced"
)

// Name is the name of this transport.
const Name = "cma"

// New returns a transport for one agent, to be put into its Config.
func New(p *fenced.Pool, o fenced.Options) nixl.Transport {
	return p.Transport(&remoteVM{secret: new([secretBytes]byte)}, o)
}

// remoteVM touches memory of peers through the kernel.
type remoteVM struct {
	secret *[secretBytes]byte // where peers read it; on the heap, which does not move
}

const (
	secretBytes = 16
	offerBytes  = 4 + 8 + secretBytes // process id, address, secret
)

func (v *remoteVM) Name() string { return Name }

// Offer says where peers can prove that they may read this process.
func (v *remoteVM) Offer() ([]byte, error) {
	rand.Read(v.secret[:]) // never fails
	own := make([]byte, secretBytes)
	if err := readAt(os.Getpid(), address(v.secret[:]), own); err != nil { // a sandbox that forbids the call
		return nil, err
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(os.Getpid()))
	b = binary.LittleEndian.AppendUint64(b, uint64(address(v.secret[:])))
	return append(b, v.secret[:]...), nil
}

// Reach reads the peer's secret. The system call does not wait for the peer.
func (v *remoteVM) Reach(_ nixl.Remote, offer []byte) (string, error) {
	if len(offer) != offerBytes {
		return "", fmt.Errorf("offer of %d bytes: %w", len(offer), nixl.ErrMismatch)
	}
	pid := int(binary.LittleEndian.Uint32(offer))
	var got [secretBytes]byte
	switch err := readAt(pid, uintptr(binary.LittleEndian.Uint64(offer[4:])), got[:]); {
	case errors.Is(err, unix.EPERM):
		return "", fmt.Errorf("the kernel does not let this process read process %d%s: %w", pid, scope(), nixl.ErrNotSupported)
	case errors.Is(err, unix.ESRCH):
		return "", fmt.Errorf("process %d is gone: %w", pid, nixl.ErrNotSupported)
	case err != nil:
		return "", fmt.Errorf("read process %d: %w: %w", pid, err, nixl.ErrBackend)
	}
	if subtle.ConstantTimeCompare(got[:], offer[12:]) != 1 {
		return "", fmt.Errorf("process %d is not the peer: %w", pid, nixl.ErrNotSupported)
	}
	return "another process of this host, copied by the kernel", nil
}

// scope explains a refusal where Yama is the likely cause.
func scope() string {
	b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if s := strings.TrimSpace(string(b)); err == nil && s != "0" {
		return " (kernel.yama.ptrace_scope is " + s + ")"
	}
	return ""
}

func (v *remoteVM) Hand(nixl.Share) (fenced.Handed, error) { return fenced.Handed{}, nil }

func (v *remoteVM) Take(o fenced.Owner, _ nixl.Desc, addr uint64, _ int, _ []byte) (fenced.Memory, error) {
	if addr == 0 || addr > maxAddr {
		return nil, fmt.Errorf("address %#x: %w", addr, nixl.ErrMismatch)
	}
	return &window{owner: o, addr: uintptr(addr)}, nil
}

// maxAddr is beyond what any process has; sums with lengths do not wrap around.
const maxAddr = 1 << 62

// window is a region in the memory of another process.
type window struct {
	owner fenced.Owner
	addr  uintptr
}

// Copy moves bytes with few system calls. A process that has ended is not touched:
// its id may be another's.
func (w *window) Copy(op nixl.Op, local [][]byte, at []uint64) (n uint64, err error) {
	here, there := make([]unix.Iovec, len(local)), make([]unix.RemoteIovec, len(local))
	for i, l := range local {
		here[i].Base = unsafe.SliceData(l)
		here[i].SetLen(len(l))
		there[i] = unix.RemoteIovec{Base: w.addr + uintptr(at[i]), Len: len(l)}
	}
	call, name := unix.ProcessVMReadv, "process_vm_readv"
	if op == nixl.Write {
		call, name = unix.ProcessVMWritev, "process_vm_writev"
	}
	for len(here) > 0 {
		if w.owner.Gone() {
			return n, fmt.Errorf("process %d is gone: %w", w.owner.PID, nixl.ErrRemoteDisconnect)
		}
		k, err := call(w.owner.PID, here, there, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ESRCH):
			return n, fmt.Errorf("process %d is gone: %w", w.owner.PID, nixl.ErrRemoteDisconnect)
		case err != nil:
			return n, fmt.Errorf("%w: %w", os.NewSyscallError(name, err), nixl.ErrBackend)
		case k == 0:
			return n, fmt.Errorf("%s moved nothing: %w", name, nixl.ErrBackend)
		}
		n += uint64(k)
		here, there = skip(here, there, uint64(k))
	}
	return n, nil
}

// skip takes what was moved off both lists, which have the same lengths.
func skip(here []unix.Iovec, there []unix.RemoteIovec, n uint64) ([]unix.Iovec, []unix.RemoteIovec) {
	for n > 0 {
		l := uint64(here[0].Len)
		if n < l {
			here[0].Base = (*byte)(unsafe.Add(unsafe.Pointer(here[0].Base), n))
			here[0].SetLen(int(l - n))
			there[0].Base += uintptr(n)
			there[0].Len -= int(n)
			break
		}
		n -= l
		here, there = here[1:], there[1:]
	}
	return here, there
}

func (w *window) Close() {}

// readAt reads memory of a process.
func readAt(pid int, addr uintptr, into []byte) error {
	here := []unix.Iovec{{Base: unsafe.SliceData(into)}}
	here[0].SetLen(len(into))
	n, err := unix.ProcessVMReadv(pid, here, []unix.RemoteIovec{{Base: addr, Len: len(into)}}, 0)
	if err == nil && n != len(into) {
		err = unix.EFAULT
	}
	if err != nil {
		return os.NewSyscallError("process_vm_readv", err)
	}
	return nil
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
