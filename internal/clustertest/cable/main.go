//go:build linux

// Command cable joins two network namespaces by a link that delays and loses packets,
// where the kernel has no queueing discipline that does. It makes a TUN device in each and
// carries packets between them until it is told to end; then the devices are gone, and
// it says how many packets there were.
//
//	cable -a NAMESPACE -b NAMESPACE -device NAME [-delay 50ms] [-loss 0.01] [-seed 1]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "cable:", err)
		os.Exit(1)
	}
}

func run() error {
	a, b := flag.String("a", "", "network namespace of one end"), flag.String("b", "", "network namespace of the other end")
	device := flag.String("device", "cable", "name of the device at both ends")
	l := &link{}
	flag.DurationVar(&l.delay, "delay", 0, "time that a packet takes, each way")
	flag.Float64Var(&l.loss, "loss", 0, "share of packets that are lost, 0 to 1")
	seed := flag.Uint64("seed", 1, "of the choice of packets that are lost")
	flag.Parse()
	if l.delay < 0 || l.loss < 0 || l.loss > 1 {
		return fmt.Errorf("delay %s and loss %v: expected a delay of 0 or more and a share from 0 to 1", l.delay, l.loss)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var ends [2]*os.File
	for i, ns := range []string{*a, *b} {
		var err error
		if ends[i], err = openTUN(ns, *device); err != nil {
			return fmt.Errorf("device %s in namespace %q: %w", *device, ns, err)
		}
		defer func() { _ = ends[i].Close() }()
	}
	defer context.AfterFunc(ctx, func() { _, _ = ends[0].Close(), ends[1].Close() })()
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i := range ends {
		wg.Go(func() {
			errs[i] = l.carry(ctx, ends[1-i], ends[i], *seed+uint64(i))
			stop() // one way is no link
		})
	}
	wg.Wait()
	_, _ = fmt.Fprintf(os.Stdout, "%d packets, %d lost\n", l.taken.Load(), l.lost.Load())
	return errors.Join(errs...)
}

// openTUN makes a device in a network namespace that "ip netns" knows.
func openTUN(namespace, device string) (*os.File, error) {
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened)
	go func() {
		runtime.LockOSThread() // and never unlock it: the thread ends in the other namespace
		f, err := openTUNThere(namespace, device)
		done <- opened{f, err}
	}()
	o := <-done
	return o.f, o.err
}

func openTUNThere(namespace, device string) (*os.File, error) {
	ns, err := os.Open(filepath.Join("/run/netns", namespace))
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, os.NewSyscallError("setns", err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/dev/net/tun", Err: err}
	}
	req, err := unix.NewIfreq(device)
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = os.NewSyscallError("ioctl TUNSETIFF", unix.IoctlIfreq(fd, unix.TUNSETIFF, req))
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), device), nil // polled, so that Close ends a Read
}
