package drivertest

import (
	"errors"

	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// neighbor is the second device of a suite, with a stream, memory of n numbers and a kernel.
type neighbor struct {
	stream, memory, axpy uint64
}

// twoDevices lets the first two devices use each other's memory. It skips where there are
// none that can.
func (s *suite) twoDevices(n int64) neighbor {
	s.Helper()
	if s.d.DeviceCount() < 2 {
		s.Skip("one device")
	}
	for _, pair := range [][2]int{{0, 1}, {1, 0}} {
		can, err := s.d.CanAccessPeer(pair[0], pair[1])
		s.must(err)
		if !can {
			s.Skipf("device %d has no access to device %d", pair[0], pair[1])
		}
		s.must(s.d.EnablePeerAccess(pair[0], pair[1]))
		s.must(s.d.EnablePeerAccess(pair[0], pair[1])) // once more is no mistake
	}
	var o neighbor
	var err error
	o.stream, err = s.d.StreamCreate(1)
	s.must(err)
	s.later(func() error { return s.d.StreamDestroy(1, o.stream) })
	o.memory, err = s.d.MemAlloc(1, 4*n)
	s.must(err)
	s.later(func() error { return s.d.MemFree(1, o.memory) })
	m, err := s.d.ModuleLoadData(1, PTX)
	s.must(err)
	s.later(func() error { return s.d.ModuleUnload(1, m) })
	o.axpy, err = s.d.ModuleGetFunction(1, m, "axpy")
	s.must(err)
	return o
}

func (s *suite) eventOf(device int) uint64 {
	s.Helper()
	n, err := s.d.EventCreate(device)
	s.must(err)
	s.later(func() error { return s.d.EventDestroy(device, n) })
	return n
}

// testPeers has a kernel read the other device's memory after that was written, and copies
// there and back.
func testPeers(s *suite) {
	const n = 1000
	if s.d.DeviceCount() > 1 {
		if _, err := s.d.CanAccessPeer(0, 999); !errors.Is(err, driver.ErrInvalid) {
			s.Errorf("CanAccessPeer() of no device = %v", err)
		}
	}
	o := s.twoDevices(n)
	x, stream, f := s.alloc(4*n), s.stream(), s.axpy()
	host := s.hostMemory(4 * n)
	floats(host, func(i int) float32 { return float32(i) })
	written, copied := s.eventOf(1), s.eventOf(0)
	s.must(s.d.MemcpyHtoDAsync(1, o.memory, host, o.stream))
	s.must(s.d.EventRecord(1, written, o.stream))
	s.must(s.d.StreamWaitEvent(0, stream, written))
	s.must(s.d.MemcpyPeerAsync(0, 0, x, 1, o.memory, 4*n, stream))
	l := driver.Launch{Function: f, Grid: driver.Dim{X: 8}, Block: driver.Dim{X: 128}}
	l.Args.Pointer(x).Pointer(o.memory).Int32(n).Float32(1)
	s.must(s.d.LaunchKernel(0, &l, stream)) // reads there
	s.must(s.d.EventRecord(0, copied, stream))
	s.must(s.d.StreamWaitEvent(1, o.stream, copied))
	s.must(s.d.MemcpyPeerAsync(1, 1, o.memory, 0, x, 4*n, o.stream))
	s.must(s.d.MemcpyDtoHAsync(1, host, o.memory, o.stream))
	s.must(s.d.StreamSynchronize(1, o.stream))
	for i := range n {
		if got := getFloat(host, i); got != float32(2*i) {
			s.Fatalf("x[%d] = %g, want %d", i, got, 2*i)
		}
	}
}

// testPeerGraphs captures work of both devices in one graph: each adds what the other has.
func testPeerGraphs(s *suite) {
	const n = 256
	o := s.twoDevices(n)
	x, stream, f := s.alloc(4*n), s.stream(), s.axpy()
	host := s.hostMemory(4 * n)
	floats(host, func(int) float32 { return 1 })
	begin, half, end := s.eventOf(0), s.eventOf(0), s.eventOf(1)
	s.must(s.d.MemcpyHtoDAsync(0, x, host, stream))
	s.must(s.d.MemcpyHtoDAsync(1, o.memory, host, o.stream))
	s.must(s.d.StreamSynchronize(0, stream))
	s.must(s.d.StreamSynchronize(1, o.stream))

	add := func(device int, function, to, from, stream uint64) {
		l := driver.Launch{Function: function, Grid: driver.Dim{X: 2}, Block: driver.Dim{X: 128}}
		l.Args.Pointer(to).Pointer(from).Int32(n).Float32(1)
		s.must(s.d.LaunchKernel(device, &l, stream))
	}
	s.must(s.d.StreamBeginCapture(0, stream))
	s.must(s.d.EventRecord(0, begin, stream))
	s.must(s.d.StreamWaitEvent(1, o.stream, begin)) // joins the capture
	add(0, f, x, o.memory, stream)
	s.must(s.d.EventRecord(0, half, stream))
	s.must(s.d.StreamWaitEvent(1, o.stream, half))
	add(1, o.axpy, o.memory, x, o.stream)
	s.must(s.d.EventRecord(1, end, o.stream))
	s.must(s.d.StreamWaitEvent(0, stream, end)) // joined back
	g, err := s.d.StreamEndCapture(0, stream)
	s.must(err)
	s.later(func() error { return s.d.GraphDestroy(0, g) })
	for range 3 {
		s.must(s.d.GraphLaunch(0, g, stream))
	}
	s.must(s.d.MemcpyDtoHAsync(0, host, x, stream))
	s.must(s.d.StreamSynchronize(0, stream))
	// 1, 1 → 2, 3 → 5, 8 → 13, 21
	for i := range n {
		if got := getFloat(host, i); got != 13 {
			s.Fatalf("x[%d] = %g after three replays, want 13", i, got)
		}
	}
}
