package fake_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/lab/cuda/drivertest"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
	"github.com/dynctl/dynctl/internal/nixl/cudaipc"
)

// The transport of device memory takes every driver as it is.
var _ cudaipc.Driver = driver.Driver(nil)

func TestSuite(t *testing.T) {
	drivertest.Run(t, func(*testing.T) driver.Driver { return newFakes(2) })
}

// The same with the kernel as PTX.
func TestSuiteOfPTX(t *testing.T) {
	drivertest.Run(t, func(*testing.T) driver.Driver { return newFakeOfPTX() })
}

func newFakeOfPTX() *fake.Driver {
	return fake.New(fake.Options{PTX: true, Kernels: []fake.Kernel{{Name: drivertest.Axpy.Name, Resources: drivertest.Axpy.Resources}}})
}

func newFake() *fake.Driver { return fake.New(fake.Options{Kernels: []fake.Kernel{drivertest.Axpy}}) }

// rig is a fake with what most mistakes need.
type rig struct {
	*fake.Driver
	t        *testing.T
	a, b     uint64 // 4096 bytes each
	s1, s2   uint64
	event    uint64
	host     []byte
	function uint64
}

func newRig(t *testing.T, d *fake.Driver) *rig {
	r := &rig{Driver: d, t: t}
	var err error
	handle := func(h uint64, e error) uint64 {
		if err = e; err != nil {
			t.Fatal(err)
		}
		return h
	}
	r.a, r.b = handle(r.MemAlloc(0, 4096)), handle(r.MemAlloc(0, 4096))
	r.s1, r.s2, r.event = handle(r.StreamCreate(0)), handle(r.StreamCreate(0)), handle(r.EventCreate(0))
	module := handle(r.ModuleLoadData(0, drivertest.PTX))
	r.function = handle(r.ModuleGetFunction(0, module, "axpy"))
	if r.host, err = r.MemHostAlloc(0, 4096); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) ok(errs ...error) {
	r.t.Helper()
	for _, err := range errs {
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) sync() error { return r.StreamSynchronize(0, r.s1) }

func (r *rig) axpy(dst, src uint64, n int32) error {
	l := driver.Launch{Function: r.function, Grid: driver.Dim{X: 64}, Block: driver.Dim{X: 128}}
	l.Args.Pointer(dst).Pointer(src).Int32(n).Float32(1)
	return r.LaunchKernel(0, &l, r.s1)
}

// TestFaults makes each mistake once, with the kernel in Go and as PTX: the fake must tell
// of it.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name, want string
		do         func(r *rig)
	}{
		{"a stream does not wait for another", "neither waits for the other", func(r *rig) {
			r.ok(r.MemsetD8Async(0, r.a, 1, 4096, r.s1), r.MemcpyDtoDAsync(0, r.b, r.a, 10, r.s2))
			_ = r.StreamSynchronize(0, r.s1)
			_ = r.StreamSynchronize(0, r.s2)
		}},
		{"the same in the other order", "neither waits for the other", func(r *rig) {
			r.ok(r.MemsetD8Async(0, r.a, 1, 4096, r.s1), r.MemcpyDtoDAsync(0, r.b, r.a, 10, r.s2))
			_ = r.StreamSynchronize(0, r.s2)
			_ = r.StreamSynchronize(0, r.s1)
		}},
		{"a kernel writes what another stream reads", "neither waits for the other", func(r *rig) {
			r.ok(r.axpy(r.a, r.b, 1), r.MemcpyDtoHAsync(0, r.host[:4], r.a, r.s2))
			_ = r.StreamSynchronize(0, r.s2)
			_ = r.sync()
		}},
		{"a kernel overlaps another and does not wait", "may overlap kernel axpy", func(r *rig) {
			l := driver.Launch{Function: r.function, Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 128}, Overlap: true}
			l.Args.Pointer(r.a).Pointer(r.b).Int32(1).Float32(1)
			r.ok(r.LaunchKernel(0, &l, r.s1)) // the first one has nothing to wait for
			_, _ = r.LaunchKernel(0, &l, r.s1), r.sync()
		}},
		{"the same in a graph", "may overlap kernel axpy", func(r *rig) {
			l := driver.Launch{Function: r.function, Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 128}, Overlap: true}
			l.Args.Pointer(r.a).Pointer(r.b).Int32(1).Float32(1)
			r.ok(r.StreamBeginCapture(0, r.s1), r.LaunchKernel(0, &l, r.s1))
			_ = r.LaunchKernel(0, &l, r.s1)
			g, err := r.StreamEndCapture(0, r.s1)
			r.ok(err, r.GraphDestroy(0, g))
		}},
		{"an event is waited for before it is recorded", "was not recorded", func(r *rig) {
			_ = r.StreamWaitEvent(0, r.s2, r.event)
		}},
		{"two copies into one buffer of the host", "neither waits for the other", func(r *rig) {
			r.ok(r.MemcpyDtoHAsync(0, r.host, r.a, r.s1), r.MemcpyDtoHAsync(0, r.host, r.b, r.s2))
			_, _ = r.sync(), r.StreamSynchronize(0, r.s2)
		}},
		{"a buffer of the host is used again too early", "changed before it was copied", func(r *rig) {
			r.ok(r.MemcpyHtoDAsync(0, r.a, r.host, r.s1))
			r.host[17]++
			_ = r.sync()
		}},
		{"memory is freed under a copy", "have not ended", func(r *rig) {
			r.ok(r.MemsetD8Async(0, r.a, 1, 4096, r.s1))
			_ = r.MemFree(0, r.a)
		}},
		{"memory is freed twice", "freed again", func(r *rig) {
			r.ok(r.MemFree(0, r.a))
			_ = r.MemFree(0, r.a)
		}},
		{"a copy after the memory was freed", "freed", func(r *rig) {
			r.ok(r.MemFree(0, r.a))
			_ = r.MemsetD8Async(0, r.a, 1, 4096, r.s1)
		}},
		{"a kernel uses freed memory", "address that it may not", func(r *rig) {
			r.ok(r.axpy(r.a, r.b, 4), r.MemFree(0, r.b))
			if err := r.sync(); !driver.IsContextLost(err) {
				r.t.Errorf("StreamSynchronize() = %v", err)
			}
		}},
		{"a kernel runs over the end", "address that it may not", func(r *rig) {
			r.ok(r.axpy(r.a, r.b, 1025))
			_ = r.sync()
			if _, err := r.MemAlloc(0, 16); !driver.IsContextLost(err) {
				r.t.Errorf("MemAlloc() with a lost context = %v", err)
			}
		}},
		{"a graph outlives its memory", "freed", func(r *rig) {
			r.ok(r.StreamBeginCapture(0, r.s1), r.axpy(r.a, r.b, 4))
			g, err := r.StreamEndCapture(0, r.s1)
			r.ok(err, r.MemFree(0, r.b), r.GraphLaunch(0, g, r.s1))
			_ = r.sync()
		}},
		{"a captured stream is destroyed", "captured", func(r *rig) {
			r.ok(r.StreamBeginCapture(0, r.s1))
			_ = r.StreamDestroy(0, r.s1)
		}},
		{"a wait in a capture", "captured", func(r *rig) {
			r.ok(r.StreamBeginCapture(0, r.s1))
			_ = r.sync()
		}},
		{"a launch with too few arguments", "more parameters", func(r *rig) {
			l := driver.Launch{Function: r.function, Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 1}}
			l.Args.Pointer(r.a).Pointer(r.b).Int32(1)
			r.ok(r.LaunchKernel(0, &l, r.s1))
			_ = r.sync()
		}},
		{"more shared memory than was allowed", "allowed 49152", func(r *rig) {
			_ = r.LaunchKernel(0, &driver.Launch{Function: r.function, SharedBytes: 50 << 10}, r.s1)
		}},
		{"a handle is opened where it was made", "process that made it", func(r *rig) {
			h, err := r.IpcGetMemHandle(0, r.a)
			r.ok(err)
			_, _ = r.IpcOpenMemHandle(0, h)
		}},
		{"memory is freed while a peer has it open", "have it open", func(r *rig) {
			h, err := r.IpcGetMemHandle(0, r.a)
			r.ok(err)
			peer := newFake()
			p, err := peer.IpcOpenMemHandle(0, h)
			r.ok(err)
			_ = r.MemFree(0, r.a)
			r.ok(peer.IpcCloseMemHandle(0, p), r.MemFree(0, r.a))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, d := range []*fake.Driver{newFake(), newFakeOfPTX()} {
				r := newRig(t, d)
				if err := r.Faults(); err != nil {
					t.Fatal(err)
				}
				c.do(r)
				if err := r.Faults(); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("Faults() = %v, want %q", err, c.want)
				}
			}
		})
	}
}

// TestOrdersThatHold has the same accesses as TestFaults, in an order.
func TestOrdersThatHold(t *testing.T) {
	r := newRig(t, newFake())
	r.ok(r.MemsetD8Async(0, r.a, 7, 4096, r.s1), r.EventRecord(0, r.event, r.s1), r.StreamWaitEvent(0, r.s2, r.event),
		r.MemcpyDtoDAsync(0, r.b, r.a, 4096, r.s2), r.StreamSynchronize(0, r.s2))
	// The host has waited for the second stream, and so for the first.
	r.ok(r.MemsetD8Async(0, r.a, 8, 4096, r.s2), r.StreamSynchronize(0, r.s2))
	if !bytes.Equal(r.Bytes(r.b, 4096), bytes.Repeat([]byte{7}, 4096)) {
		t.Error("the copy is wrong")
	}
	// Two streams read the same bytes, and others' bytes are written meanwhile.
	r.ok(r.MemcpyDtoHAsync(0, r.host[:8], r.a, r.s1), r.MemcpyDtoHAsync(0, r.host[8:16], r.a, r.s2), r.MemsetD8Async(0, r.a+100, 1, 1, r.s2),
		r.StreamSynchronize(0, r.s2), r.sync())
	if err := r.Faults(); err != nil {
		t.Error(err)
	}
}

// Others allocate, free and share while a stream is captured, as in a relaxed capture: a
// worker that starts beside another one.
func TestOthersDuringACapture(t *testing.T) {
	r := newRig(t, newFake())
	r.ok(r.StreamBeginCapture(0, r.s1), r.axpy(r.a, r.b, 4))
	other, err := r.MemAlloc(0, 64)
	r.ok(err)
	_, err = r.IpcGetMemHandle(0, other)
	r.ok(err, r.MemsetD8Async(0, other, 1, 64, r.s2), r.StreamSynchronize(0, r.s2), r.MemFree(0, other))
	g, err := r.StreamEndCapture(0, r.s1)
	r.ok(err, r.GraphDestroy(0, g), r.Faults())
}

// TestLazy shows that nothing runs before somebody waits.
func TestLazy(t *testing.T) {
	r := newRig(t, newFake())
	r.ok(r.MemsetD8Async(0, r.a, 7, 4096, r.s1))
	if b := r.Bytes(r.a, 1)[0]; b == 7 {
		t.Error("the work ran before anybody waited")
	}
	err := r.Close()
	for _, want := range []string{"no wait for 1 works", "memory of 4096 bytes", "host memory", "2 streams", "1 events", "1 modules"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Close() = %v, want %q", err, want)
		}
	}
}

// Virtual time: work of a stream comes one after the other, and after what the stream
// waits for; an event that was not reached has no time yet.
func TestElapsedTime(t *testing.T) {
	axpy := drivertest.Axpy
	axpy.Took = 10 * time.Millisecond
	d := fake.New(fake.Options{Kernels: []fake.Kernel{axpy}})
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	handle := func(h uint64, err error) uint64 {
		t.Helper()
		must(err)
		return h
	}
	a, b := handle(d.MemAlloc(0, 64)), handle(d.MemAlloc(0, 64))
	s1, s2 := handle(d.StreamCreate(0)), handle(d.StreamCreate(0))
	begin, middle, end := handle(d.EventCreateWithTiming(0)), handle(d.EventCreateWithTiming(0)), handle(d.EventCreateWithTiming(0))
	module := handle(d.ModuleLoadData(0, drivertest.PTX))
	l := driver.Launch{Function: handle(d.ModuleGetFunction(0, module, "axpy")), Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 16}}
	l.Args.Pointer(a).Pointer(b).Int32(16).Float32(1)
	must(d.EventRecord(0, begin, s1), d.MemsetD8Async(0, a, 0, 64, s1), d.MemsetD8Async(0, b, 0, 64, s1), d.LaunchKernel(0, &l, s1))
	must(d.EventRecord(0, middle, s1), d.StreamWaitEvent(0, s2, middle), d.MemsetD8Async(0, a, 1, 64, s2), d.EventRecord(0, end, s2))
	var e *driver.Error
	if _, err := d.EventElapsedTime(0, begin, end); !errors.As(err, &e) || e.Result != driver.NotReady {
		t.Errorf("EventElapsedTime() before the work has run = %v", err)
	}
	must(d.EventSynchronize(0, end), d.StreamSynchronize(0, s1))
	for event, want := range map[uint64]time.Duration{begin: 0, middle: 10*time.Millisecond + 2*time.Microsecond, end: 10*time.Millisecond + 3*time.Microsecond} {
		if got, err := d.EventElapsedTime(0, begin, event); err != nil || got != want {
			t.Errorf("EventElapsedTime() = %s, %v, want %s", got, err, want)
		}
	}
	must(d.EventDestroy(0, begin), d.EventDestroy(0, middle), d.EventDestroy(0, end), d.StreamDestroy(0, s1), d.StreamDestroy(0, s2))
	must(d.ModuleUnload(0, module), d.MemFree(0, a), d.MemFree(0, b), d.Close())
}
