package amxtest

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// traced runs a test of this file in a traced process.
func traced(t *testing.T, test string, deadline time.Duration) ([]byte, error) {
	t.Helper()
	out, counts, err := trace([]string{os.Args[0], "-test.run=^" + test + "$", "-test.v"}, append(os.Environ(), variable+"=1"), time.Now().Add(deadline))
	if errors.Is(err, errDenied) {
		t.Skip(err)
	}
	if counts != (Counts{}) {
		t.Errorf("instructions of AMX: %v", counts)
	}
	return out, err
}

var nowhere *int

// TestPassesSignals runs Go code that lives on signals: faults that become panics,
// notifications, preemption, and many threads.
func TestPassesSignals(t *testing.T) {
	if !Emulated() {
		if out, err := traced(t, "TestPassesSignals", time.Minute); err != nil || !bytes.Contains(out, []byte("--- PASS: TestPassesSignals")) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	fault := func() (r any) {
		defer func() { r = recover() }()
		return *nowhere
	}
	if err, ok := fault().(runtime.Error); !ok {
		t.Errorf("a fault became %v", err)
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	defer signal.Stop(c)
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	<-c
	// Loops without calls end only when signals preempt them.
	var wait sync.WaitGroup
	stop := false
	for range 4 {
		wait.Go(func() {
			runtime.LockOSThread() // ends with the goroutine
			for n := range 1 << 24 {
				if n < 0 && stop {
					return
				}
			}
		})
	}
	for range 5 {
		runtime.GC()
	}
	wait.Wait()
}

// TestReportsDeath checks that a process that dies, or is too slow, is an error.
func TestReportsDeath(t *testing.T) {
	if _, err := traced(t, "TestDies", time.Minute); err == nil {
		t.Error("a process that exits with 3 is fine")
	}
	start := time.Now()
	if _, err := traced(t, "TestHangs", 300*time.Millisecond); err == nil || time.Since(start) > 30*time.Second {
		t.Errorf("a process that hangs: %v after %v", err, time.Since(start))
	}
}

func TestDies(t *testing.T) {
	if Emulated() {
		os.Exit(3)
	}
	t.Skip("part of TestReportsDeath")
}

func TestHangs(t *testing.T) {
	if Emulated() {
		<-time.After(time.Hour)
	}
	t.Skip("part of TestReportsDeath")
}
