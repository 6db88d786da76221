package amxtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// errDenied is returned where a process may not trace its children.
var errDenied = errors.New("tracing is not permitted here")

// tracer runs one process. All of its methods belong to one thread.
type tracer struct {
	pid     int
	threads map[int]*tiles
	counts  Counts
}

// trace runs the program to its end, at most until the deadline, and returns what it
// wrote. The error says how it ended, unless that was well.
func trace(args, env []string, deadline time.Time) (out []byte, counts Counts, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, counts, err
	}
	defer read.Close()
	done := make(chan struct{})
	go func() { // only the thread that starts a process can trace it
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer write.Close()
		counts, err = traceLocked(args, env, write, deadline)
	}()
	out, readErr := io.ReadAll(read) // ends when the process has ended, too
	<-done
	return out, counts, errors.Join(err, readErr)
}

func traceLocked(args, env []string, output *os.File, deadline time.Time) (Counts, error) {
	pid, err := syscall.ForkExec(args[0], args, &syscall.ProcAttr{
		Env: env, Files: []uintptr{0, output.Fd(), output.Fd()}, Sys: &syscall.SysProcAttr{Ptrace: true},
	})
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOSYS) {
		return Counts{}, fmt.Errorf("%w: %w", errDenied, err)
	}
	if err != nil {
		return Counts{}, fmt.Errorf("start %s: %w", args[0], err)
	}
	t := &tracer{pid: pid, threads: map[int]*tiles{}}
	var mu sync.Mutex
	ended := false
	timer := time.AfterFunc(time.Until(deadline), func() {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the tracer sees how it ends
		}
	})
	defer timer.Stop()
	status, err := t.run()
	mu.Lock()
	ended = true
	mu.Unlock()
	if err == nil && (!status.Exited() || status.ExitStatus() != 0) {
		err = fmt.Errorf("the process ended with status %#x", uint32(status))
	}
	return t.counts, err
}

// wait returns the next stop or end of a thread of the process. Other children of
// this program, which belong to other threads, are left to those.
func (t *tracer) wait() (tid int, status syscall.WaitStatus, err error) {
	for {
		tid, err = syscall.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		if !errors.Is(err, syscall.EINTR) {
			return tid, status, err
		}
	}
}

func (t *tracer) run() (syscall.WaitStatus, error) {
	// The first stop is that of execve.
	if _, status, err := t.wait(); err != nil || !status.Stopped() {
		return status, fmt.Errorf("the process did not stop at its start: %#x, %w", status, err)
	}
	err := syscall.PtraceSetOptions(t.pid, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errDenied, errors.Join(err, syscall.Kill(t.pid, syscall.SIGKILL)))
	}
	t.threads[t.pid] = new(tiles)
	if err := syscall.PtraceCont(t.pid, 0); err != nil {
		return 0, fmt.Errorf("continue: %w", err)
	}
	for {
		tid, status, err := t.wait()
		if err != nil {
			return 0, fmt.Errorf("wait for the process: %w", err)
		}
		if !status.Stopped() {
			delete(t.threads, tid)
			if tid == t.pid { // reported last
				return status, nil
			}
			continue
		}
		signal, err := t.stopped(tid, status)
		if err == nil {
			err = syscall.PtraceCont(tid, signal)
		}
		// A thread that another one has ended meanwhile is gone.
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			return 0, fmt.Errorf("thread %d: %w", tid, errors.Join(err, syscall.Kill(t.pid, syscall.SIGKILL)))
		}
	}
}

// stopped handles a stop and returns the signal that the thread gets.
func (t *tracer) stopped(tid int, status syscall.WaitStatus) (signal int, err error) {
	sig := status.StopSignal()
	known := t.threads[tid] != nil
	if !known {
		t.threads[tid] = new(tiles)
	}
	switch {
	case !known && sig == syscall.SIGSTOP: // how a new thread starts
		return 0, nil
	case sig == syscall.SIGTRAP && status>>16 != 0: // an event: a thread was made
		return 0, nil
	case sig == syscall.SIGILL:
		return t.illegal(tid)
	}
	return int(sig), nil
}

// illegal executes the instructions of AMX at which a thread has stopped, as many as
// follow each other.
func (t *tracer) illegal(tid int) (signal int, err error) {
	var regs syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(tid, &regs); err != nil {
		return 0, err
	}
	var code [128]byte
	n, err := t.readSome(code[:], regs.Rip)
	if err != nil {
		return int(syscall.SIGILL), nil
	}
	done := 0
	for rest := code[:n]; ; rest = code[done:n] {
		in, ok := decode(rest)
		if !ok {
			break
		}
		address, stride := operand(in, &regs)
		switch err := t.threads[tid].do(in, address, stride, t); {
		case errors.Is(err, errUndefined):
			return int(syscall.SIGILL), t.advance(tid, &regs, done)
		case err != nil:
			t.counts.faults++
			return int(syscall.SIGSEGV), errors.Join(t.advance(tid, &regs, done), setFault(tid, err))
		}
		t.counts.ops[in.op]++
		done += in.size
	}
	if done == 0 {
		return int(syscall.SIGILL), nil
	}
	return 0, t.advance(tid, &regs, done)
}

func (t *tracer) advance(tid int, regs *syscall.PtraceRegs, bytes int) error {
	regs.Rip += uint64(bytes)
	return syscall.PtraceSetRegs(tid, regs)
}

// operand is the address in memory of an instruction, and the distance of rows.
func operand(in instruction, r *syscall.PtraceRegs) (address, stride uint64) {
	regs := [16]uint64{r.Rax, r.Rcx, r.Rdx, r.Rbx, r.Rsp, r.Rbp, r.Rsi, r.Rdi, r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15}
	address = uint64(in.offset)
	if in.base != none {
		address += regs[in.base]
	}
	if in.index != none {
		stride = regs[in.index] << in.scale
	}
	if in.op != tileloadd && in.op != tilestored {
		address += stride
	}
	return address, stride
}

// faultError is an access to memory that is not there.
type faultError struct{ address uint64 }

func (e *faultError) Error() string { return fmt.Sprintf("no memory at %#x", e.address) }

func (t *tracer) readSome(dst []byte, address uint64) (int, error) {
	local := []unix.Iovec{{Base: &dst[0], Len: uint64(len(dst))}}
	return unix.ProcessVMReadv(t.pid, local, []unix.RemoteIovec{{Base: uintptr(address), Len: len(dst)}}, 0)
}

func (t *tracer) read(address, stride uint64, rows ...[]byte) error {
	return t.copyRows(unix.ProcessVMReadv, address, stride, rows)
}

func (t *tracer) write(address, stride uint64, rows ...[]byte) error {
	return t.copyRows(unix.ProcessVMWritev, address, stride, rows)
}

// copyRows copies all rows in one call of the system, and one by one where that ends
// early: which byte is not there is known of a single row only.
func (t *tracer) copyRows(move func(pid int, local []unix.Iovec, remote []unix.RemoteIovec, flags uint) (int, error), address, stride uint64, rows [][]byte) error {
	local, remote, size := make([]unix.Iovec, len(rows)), make([]unix.RemoteIovec, len(rows)), 0
	for i, r := range rows {
		local[i] = unix.Iovec{Base: &r[0], Len: uint64(len(r))}
		remote[i] = unix.RemoteIovec{Base: uintptr(address + uint64(i)*stride), Len: len(r)}
		size += len(r)
	}
	n, err := move(t.pid, local, remote, 0)
	if err == nil && n == size {
		return nil
	}
	for i := range rows {
		if n, err := move(t.pid, local[i:i+1], remote[i:i+1], 0); err != nil || n < len(rows[i]) {
			return &faultError{uint64(remote[i].Base) + uint64(max(n, 0))}
		}
	}
	return nil
}

// setFault turns the signal that a thread has stopped with into what the system
// sends for a fault.
func setFault(tid int, err error) error {
	const (
		mapError  = 1    // SEGV_MAPERR
		fromOwner = 0x80 // SI_KERNEL, of a general protection fault
	)
	var info [128]byte // siginfo_t: signal, error, code, address
	binary.LittleEndian.PutUint32(info[0:], uint32(syscall.SIGSEGV))
	binary.LittleEndian.PutUint32(info[8:], fromOwner)
	if fault := (*faultError)(nil); errors.As(err, &fault) {
		binary.LittleEndian.PutUint32(info[8:], mapError)
		binary.LittleEndian.PutUint64(info[16:], fault.address)
	}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, unix.PTRACE_SETSIGINFO, uintptr(tid), 0, uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
