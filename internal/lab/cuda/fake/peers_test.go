package fake_test

import (
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/lab/cuda/drivertest"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
)

// newFakes is newFake with so many devices, without access to each other yet.
func newFakes(n int) *fake.Driver {
	o := fake.Options{Kernels: []fake.Kernel{drivertest.Axpy}}
	for range n {
		o.Devices = append(o.Devices, driver.Properties{
			Name: "Fake H200", PCI: "0000:3b:00.0", Major: 9, Multiprocessors: 132, MemoryBytes: 1 << 30, SharedBytes: 227 << 10,
		})
	}
	return fake.New(o)
}

// side is one of two devices, with what most mistakes between them need.
type side struct {
	device                       int
	memory, stream, event, other uint64 // other is the function
}

type pairRig struct {
	*fake.Driver
	t     *testing.T
	sides [2]side
}

func newPairRig(t *testing.T, access bool) *pairRig {
	r := &pairRig{Driver: newFakes(3), t: t}
	for i := range r.sides {
		s := &r.sides[i]
		s.device = i
		for _, err := range []error{
			set(&s.memory)(r.MemAlloc(i, 4096)), set(&s.stream)(r.StreamCreate(i)), set(&s.event)(r.EventCreate(i)),
		} {
			r.ok(err)
		}
		var module uint64
		r.ok(set(&module)(r.ModuleLoadData(i, drivertest.PTX)))
		r.ok(set(&s.other)(r.ModuleGetFunction(i, module, "axpy")))
		if access {
			r.ok(r.EnablePeerAccess(i, 1-i))
		}
	}
	return r
}

func set(to *uint64) func(uint64, error) error {
	return func(v uint64, err error) error {
		*to = v
		return err
	}
}

func (r *pairRig) ok(errs ...error) {
	r.t.Helper()
	for _, err := range errs {
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// add adds the other side's numbers to one's own.
func (r *pairRig) add(i int) error {
	s := r.sides[i]
	l := driver.Launch{Function: s.other, Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 128}}
	l.Args.Pointer(s.memory).Pointer(r.sides[1-i].memory).Int32(16).Float32(1)
	return r.LaunchKernel(s.device, &l, s.stream)
}

// after has side i wait for what the other one's stream has.
func (r *pairRig) after(i int) {
	r.t.Helper()
	s, o := r.sides[i], r.sides[1-i]
	r.ok(r.EventRecord(o.device, o.event, o.stream), r.StreamWaitEvent(s.device, s.stream, o.event))
}

func (r *pairRig) sync() {
	for _, s := range r.sides {
		_ = r.StreamSynchronize(s.device, s.stream) // Faults tells what is wrong
	}
}

// TestFaultsOfPeers makes each mistake between devices once.
func TestFaultsOfPeers(t *testing.T) {
	captured := func(r *pairRig, record func()) {
		first := r.sides[0]
		r.ok(r.StreamBeginCapture(0, first.stream))
		r.after(1)
		record()
		g, err := r.StreamEndCapture(0, first.stream)
		if err != nil {
			return
		}
		r.ok(r.GraphLaunch(0, g, first.stream))
		r.sync()
	}
	for _, c := range []struct {
		name, want string
		access     bool
		do         func(r *pairRig)
	}{
		{"a kernel reads memory that it has no access to", "which has no access to it", false, func(r *pairRig) {
			r.ok(r.add(0))
			r.sync()
		}},
		{"devices do not wait for each other", "neither waits for the other", true, func(r *pairRig) {
			r.ok(r.add(0), r.add(1))
			r.sync()
		}},
		{"within a graph", "neither waits for the other", true, func(r *pairRig) {
			captured(r, func() {
				r.ok(r.add(0), r.add(1))
				r.after(0)
			})
		}},
		{"from one graph to the next", "neither waits for the other", true, func(r *pairRig) {
			captured(r, func() {
				r.ok(r.add(0))
				r.after(1)
				r.ok(r.add(1))
				r.after(0)
			})
			r.ok(r.Faults())
			r.ok(r.MemsetD8Async(0, r.sides[0].memory, 0, 64, r.sides[0].stream), r.add(1))
			r.sync()
		}},
		{"a stream is not joined back", "was not joined back", true, func(r *pairRig) {
			captured(r, func() {
				r.after(1)
				r.ok(r.add(1))
			})
		}},
		{"an event of a capture that has ended", "recorded in a capture", true, func(r *pairRig) {
			captured(r, func() {
				r.ok(r.add(0))
				r.after(1)
				r.after(0)
			})
			_ = r.StreamWaitEvent(1, r.sides[1].stream, r.sides[0].event)
		}},
		{"a capture waits for what is not in it", "outside of it", true, func(r *pairRig) {
			r.ok(r.add(1), r.EventRecord(1, r.sides[1].event, r.sides[1].stream), r.StreamBeginCapture(0, r.sides[0].stream))
			_ = r.StreamWaitEvent(0, r.sides[0].stream, r.sides[1].event)
		}},
		{"a copy names the wrong devices", "are not of the devices", true, func(r *pairRig) {
			_ = r.MemcpyPeerAsync(0, 1, r.sides[0].memory, 0, r.sides[1].memory, 16, r.sides[0].stream)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newPairRig(t, c.access)
			c.do(r)
			if err := r.Faults(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Faults() = %v, want %q", err, c.want)
			}
		})
	}
}

// The same accesses in an order are no mistakes, and a stream that only waits has all that
// it waits for.
func TestOrdersOfPeersThatHold(t *testing.T) {
	r := newPairRig(t, true)
	r.ok(r.MemsetD8Async(0, r.sides[0].memory, 0, 4096, r.sides[0].stream))
	r.after(1)
	r.ok(r.add(1))
	r.after(0)
	r.ok(r.StreamSynchronize(0, r.sides[0].stream), r.add(0))
	r.after(1)
	r.ok(r.StreamSynchronize(1, r.sides[1].stream), r.Faults())
}

func TestDevicesWithoutPeers(t *testing.T) {
	d := fake.New(fake.Options{Devices: make([]driver.Properties, 3), NoPeers: []int{1}})
	for pair, want := range map[[2]int]bool{{0, 1}: false, {1, 2}: false, {0, 2}: true, {2, 0}: true, {2, 2}: false} {
		if got, err := d.CanAccessPeer(pair[0], pair[1]); got != want || err != nil {
			t.Errorf("CanAccessPeer%v = %t, %v", pair, got, err)
		}
	}
	if err := d.EnablePeerAccess(0, 1); err == nil || !strings.Contains(err.Error(), "cannot use each other's memory") {
		t.Errorf("EnablePeerAccess() = %v", err)
	}
}
