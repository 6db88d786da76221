package device_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/lab/cuda/drivertest"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// long limits the time that tests wait for an event that must happen.
const long = 20 * time.Second

// rig is a device over a fake with what most tests need.
type rig struct {
	*device.Device
	t      *testing.T
	fake   *fake.Driver
	ctx    context.Context
	decode *device.Stream
	copies *device.Stream
	event  *device.Event
	arena  *device.Arena
	host   []byte
}

func newRig(t *testing.T) *rig {
	t.Helper()
	f := fake.New(fake.Options{Kernels: []fake.Kernel{drivertest.Axpy}})
	d, err := device.Open(f, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), long)
	t.Cleanup(cancel)
	r := &rig{Device: d, t: t, fake: f, ctx: ctx}
	var errs [5]error
	r.decode, errs[0] = d.NewStream(device.Urgent)
	r.copies, errs[1] = d.NewStream(device.Patient)
	r.event, errs[2] = d.NewEvent()
	r.arena, errs[3] = d.Arena(device.Workspace, 1<<16)
	pinned, err := d.Pinned(device.IO, 1<<16)
	if errs[4] = err; err == nil {
		r.host, errs[4] = pinned.Take(4096)
	}
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) ok(errs ...error) {
	r.t.Helper()
	if err := errors.Join(errs...); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) take(n int64) device.Region {
	r.t.Helper()
	region, err := r.arena.Take(n)
	r.ok(err)
	return region
}

// close closes the device and its driver, which tells of faults and of what is left.
func (r *rig) close() error {
	return errors.Join(r.Close(r.ctx), r.fake.Close())
}

func TestWorkInStreams(t *testing.T) {
	r := newRig(t)
	a, b := r.take(4096), r.take(4096)
	for i := range r.host {
		r.host[i] = byte(i * 7)
	}
	want := bytes.Clone(r.host)
	r.ok(r.copies.Upload(a, r.host), r.copies.Record(r.event),
		r.decode.After(r.event), r.decode.Copy(b, a), r.decode.Set(b.Slice(5, 3), 0xee))
	copy(want[5:], "\xee\xee\xee")
	done, err := r.NewEvent()
	r.ok(err, r.event.Wait(r.ctx)) // the host's memory may be used again
	clear(r.host)
	r.ok(r.decode.Download(r.host, b), r.decode.Record(done), done.Wait(r.ctx))
	if !bytes.Equal(r.host, want) {
		t.Error("the data read back differs from the data written")
	}
	if ok, err := done.Done(); !ok || err != nil {
		t.Errorf("Done() after Wait = %v, %v", ok, err)
	}
	r.ok(r.close())
}

func TestKernelsInStreams(t *testing.T) {
	r := newRig(t)
	m, err := r.Driver().ModuleLoadData(0, drivertest.PTX)
	r.ok(err)
	f, err := r.Driver().ModuleGetFunction(0, m, "axpy")
	r.ok(err)
	x, y := r.take(400), r.take(400)
	r.ok(r.decode.Set(x, 0), r.decode.Set(y, 0))
	l := driver.Launch{Function: f, Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 128}}
	l.Args.Pointer(y.Address).Pointer(x.Address).Int32(100).Float32(2)
	r.ok(r.decode.Launch(&l), r.decode.Record(r.event), r.event.Wait(r.ctx), r.Driver().ModuleUnload(0, m), r.close())
}

// Whoever uses what is in use, or never waits, is told: by the call that waits, or at
// the end.
func TestFaultsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		want string
		do   func(r *rig)
	}{
		"a stream does not wait for another": {"neither waits for the other", func(r *rig) {
			a := r.take(64)
			r.ok(r.copies.Set(a, 1), r.decode.Set(a, 2))
		}},
		"the host's memory is used again too early": {"changed before it was copied", func(r *rig) {
			r.ok(r.copies.Upload(r.take(4096), r.host))
			r.host[0]++
		}},
		"a copy over the end of an arena": {"no memory there", func(r *rig) {
			all := r.arena.All()
			if err := r.copies.Set(device.Region{Address: all.Address + 1, Bytes: all.Bytes}, 1); !errors.Is(err, driver.ErrInvalid) {
				r.t.Errorf("Set() = %v", err)
			}
		}},
		"an event is waited for before it was recorded": {"was not recorded", func(r *rig) {
			if err := r.decode.After(r.event); err == nil {
				r.t.Error("After() takes it")
			}
		}},
		"a module is left": {"1 modules are left", func(r *rig) {
			_, err := r.Driver().ModuleLoadData(0, drivertest.PTX)
			r.ok(err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c.do(r)
			if err := r.close(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Close() = %v, want %q", err, c.want)
			}
		})
	}
	t.Run("memory is used after the device was closed", func(t *testing.T) {
		r := newRig(t)
		a := r.take(64)
		r.ok(r.Close(r.ctx))
		if err := r.fake.MemsetD8Async(0, a.Address, 1, 64, r.decode.Handle()); err == nil {
			t.Error("freed memory is used")
		}
		if _, err := r.NewEvent(); !errors.Is(err, device.ErrClosed) {
			t.Errorf("NewEvent() = %v", err)
		}
		if err := r.Run(r.ctx, func() error { return nil }); !errors.Is(err, device.ErrClosed) {
			t.Errorf("Run() = %v", err)
		}
		r.ok(r.Close(r.ctx)) // again
	})
	t.Run("the device is not closed", func(t *testing.T) {
		r := newRig(t)
		err := r.fake.Close()
		for _, want := range []string{"memory of 65536 bytes", "host memory of 65536 bytes", "2 streams", "3 events"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Close() of the driver = %v, want %q", err, want)
			}
		}
		_ = r.Close(r.ctx) // its handles are gone; its goroutine ends
	})
}

// slow is a driver whose work does not end while it is told so.
type slow struct {
	driver.Driver
	ends bool
}

func (s *slow) EventQuery(device int, event uint64) (bool, error) {
	if !s.ends {
		return false, nil
	}
	return s.Driver.EventQuery(device, event)
}

// Work that does not end is not waited for without an end, and nothing is freed under it.
func TestWorkThatHangs(t *testing.T) {
	f := fake.New(fake.Options{})
	s := &slow{Driver: f}
	d, err := device.Open(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := d.NewStream(device.Normal)
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.Arena(device.Workspace, 4096)
	if err != nil {
		t.Fatal(err)
	}
	e, err := d.NewEvent()
	if err := errors.Join(err, stream.Set(a.All(), 1), stream.Record(e)); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if err := e.Wait(short); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "has not ended") {
		t.Errorf("Wait() = %v", err)
	}
	if err := d.Close(short); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "nothing is freed: work on device 0 has not ended") {
		t.Errorf("Close() = %v", err)
	}
	if u := d.Usage(); len(u) != 1 {
		t.Errorf("Usage() = %+v", u)
	}
	s.ends = true
	if err := errors.Join(d.Close(t.Context()), f.Close()); err != nil {
		t.Error(err)
	}
}

func TestLostDevice(t *testing.T) {
	r := newRig(t)
	a := r.take(64)
	r.ok(r.decode.Set(a, 1))
	r.fake.Lose(0, driver.UncorrectableECC)
	first := r.decode.Set(a, 2)
	if !errors.Is(first, device.ErrLost) || !driver.IsContextLost(first) || !strings.Contains(first.Error(), "uncorrectable ECC") {
		t.Errorf("the first call after the loss: %v", first)
	}
	select {
	case <-r.Lost():
	default:
		t.Error("Lost() is open")
	}
	r.fake.Lose(0, driver.LaunchFailed) // what comes later is not the reason
	_, errNew := r.NewStream(device.Normal)
	_, errArena := r.Arena(device.Weights, 64)
	_, errBudget := r.Budget(0.5)
	for name, err := range map[string]error{
		"NewStream": errNew, "Arena": errArena, "Budget": errBudget, "Record": r.decode.Record(r.event),
		"Run": r.Run(r.ctx, func() error { t.Error("it runs"); return nil }), "Err": r.Err(),
	} {
		if !errors.Is(err, device.ErrLost) || !strings.Contains(err.Error(), "uncorrectable ECC") {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.ok(r.Close(r.ctx)) // nothing can be freed
}

// A driver does not report a kernel that hangs.
func TestAbandonedDevice(t *testing.T) {
	r := newRig(t)
	r.Abandon(errors.New("step 7 hangs"))
	r.Abandon(errors.New("something later"))
	if err := r.Err(); !errors.Is(err, device.ErrLost) || !strings.Contains(err.Error(), "Fake H200: step 7 hangs") {
		t.Errorf("Err() = %v", err)
	}
	r.ok(r.Close(r.ctx))
}

func TestOpenRefuses(t *testing.T) {
	f := fake.New(fake.Options{Devices: []driver.Properties{{Name: "H200", MemoryBytes: 1 << 20, ComputeProhibited: true}, {Name: "H100", MemoryBytes: 1 << 20}}})
	f.Lose(1, driver.UncorrectableECC)
	for index, want := range []string{"open device 0 (H200): its compute mode prohibits processes", "open device 1", "open device 2"} {
		if d, err := device.Open(f, index); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%d) = %v, %v", index, d, err)
		}
	}
}
