package drivertest

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// Run tests a driver on its first device. open returns a driver of its own for each
// test; the suite closes it, and every fault and leak that Close tells of is an error.
func Run(t *testing.T, open func(t *testing.T) driver.Driver) {
	for _, c := range []struct {
		name string
		test func(s *suite)
	}{
		{"devices", testDevices},
		{"memory", testMemory},
		{"out of memory", testOutOfMemory},
		{"events order streams", testEvents},
		{"events with timing", testTiming},
		{"kernels", testKernels},
		{"kernels that are not there", testModules},
		{"graphs", testGraphs},
		{"tensor maps", testTensorMaps},
		{"invalid calls", testInvalid},
		{"sharing", testSharing},
		{"peers", testPeers},
		{"graphs of two devices", testPeerGraphs},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := open(t)
			s := &suite{T: t, d: d}
			c.test(s)
			for i := len(s.undo) - 1; i >= 0; i-- {
				s.must(s.undo[i]())
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

type suite struct {
	*testing.T
	d    driver.Driver
	undo []func() error
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Error(err) // not Fatal: what was made is freed all the same
	}
}

func (s *suite) later(f func() error) { s.undo = append(s.undo, f) }

func (s *suite) alloc(n int64) uint64 {
	s.Helper()
	p, err := s.d.MemAlloc(0, n)
	s.must(err)
	s.later(func() error { return s.d.MemFree(0, p) })
	return p
}

func (s *suite) hostMemory(n int64) []byte {
	s.Helper()
	b, err := s.d.MemHostAlloc(0, n)
	s.must(err)
	s.later(func() error { return s.d.MemFreeHost(0, b) })
	return b
}

func (s *suite) stream() uint64 {
	s.Helper()
	n, err := s.d.StreamCreate(0)
	s.must(err)
	s.later(func() error { return s.d.StreamDestroy(0, n) })
	return n
}

func (s *suite) event() uint64 {
	s.Helper()
	n, err := s.d.EventCreate(0)
	s.must(err)
	s.later(func() error { return s.d.EventDestroy(0, n) })
	return n
}

func (s *suite) axpy() uint64 {
	s.Helper()
	m, err := s.d.ModuleLoadData(0, PTX)
	s.must(err)
	s.later(func() error { return s.d.ModuleUnload(0, m) })
	f, err := s.d.ModuleGetFunction(0, m, "axpy")
	s.must(err)
	return f
}

func testDevices(s *suite) {
	if v := s.d.Version(); v < driver.Oldest {
		s.Errorf("Version() = %s", v)
	}
	n := s.d.DeviceCount()
	if n < 1 {
		s.Fatalf("DeviceCount() = %d", n)
	}
	seen := map[[16]byte]bool{}
	for i := range n {
		p, err := s.d.DeviceProperties(i)
		s.must(err)
		uuid, err := s.d.DeviceUUID(i)
		s.must(err)
		if uuid != p.UUID || seen[uuid] {
			s.Errorf("device %d has the UUID %x, and %x", i, uuid, p.UUID)
		}
		seen[uuid] = true
		if p.Name == "" || len(p.PCI) != len("0000:3b:00.0") || p.Major < 5 || p.Minor < 0 || p.Multiprocessors < 1 || p.MemoryBytes < 1<<20 || p.SharedBytes < 32<<10 {
			s.Errorf("device %d: %+v", i, p)
		}
	}
	free, total, err := s.d.MemGetInfo(0)
	s.must(err)
	if free <= 0 || total < free {
		s.Errorf("MemGetInfo() = %d, %d", free, total)
	}
}

func testMemory(s *suite) {
	const n = 10_007
	a, b, stream := s.alloc(n), s.alloc(n), s.stream()
	src, dst := s.hostMemory(n), s.hostMemory(n)
	for i := range src {
		src[i] = byte(i * 7)
	}
	s.must(s.d.MemcpyHtoDAsync(0, a, src, stream))
	s.must(s.d.MemcpyDtoDAsync(0, b, a, n, stream))
	s.must(s.d.MemsetD8Async(0, b+5, 0xee, 3, stream)) // an address within an allocation
	s.must(s.d.MemcpyDtoHAsync(0, dst, b, stream))
	s.must(s.d.StreamSynchronize(0, stream))
	want := bytes.Clone(src)
	copy(want[5:], "\xee\xee\xee")
	if !bytes.Equal(dst, want) {
		s.Error("the data read back differs from the data written")
	}
}

func testOutOfMemory(s *suite) {
	_, total, err := s.d.MemGetInfo(0)
	s.must(err)
	_, err = s.d.MemAlloc(0, 2*total)
	if !errors.Is(err, driver.ErrOutOfMemory) || driver.IsContextLost(err) || !strings.Contains(err.Error(), "free") {
		s.Errorf("MemAlloc() of twice the memory = %v", err)
	}
	s.alloc(1 << 10) // goes on
}

func testEvents(s *suite) {
	const n = 1 << 20
	a, b := s.alloc(n), s.alloc(n)
	host := s.hostMemory(n)
	first, second, done := s.stream(), s.stream(), s.event()
	written := s.event()
	s.must(s.d.MemsetD8Async(0, a, 1, n, first))
	s.must(s.d.EventRecord(0, written, first))
	s.must(s.d.StreamWaitEvent(0, second, written))
	s.must(s.d.MemcpyDtoDAsync(0, b, a, n, second))
	s.must(s.d.MemcpyDtoHAsync(0, host, b, second))
	s.must(s.d.EventRecord(0, done, second))
	for {
		ok, err := s.d.EventQuery(0, done)
		s.must(err)
		if ok || err != nil {
			break
		}
	}
	if bytes.Count(host, []byte{1}) != n {
		s.Error("the second stream did not wait for the first")
	}
	s.must(s.d.MemsetD8Async(0, a, 2, n, first))
	s.must(s.d.EventRecord(0, written, first))
	s.must(s.d.EventSynchronize(0, written))
}

func testTiming(s *suite) {
	const n = 1 << 20
	a, stream := s.alloc(n), s.stream()
	var marks [3]uint64
	for i := range marks {
		var err error
		marks[i], err = s.d.EventCreateWithTiming(0)
		s.must(err)
		s.later(func() error { return s.d.EventDestroy(0, marks[i]) })
		s.must(s.d.EventRecord(0, marks[i], stream))
		s.must(s.d.MemsetD8Async(0, a, byte(i), n, stream))
	}
	s.must(s.d.StreamSynchronize(0, stream))
	elapsed := func(from, to int) time.Duration {
		took, err := s.d.EventElapsedTime(0, marks[from], marks[to])
		s.must(err)
		return took
	}
	first, second, both := elapsed(0, 1), elapsed(1, 2), elapsed(0, 2)
	if off := both - first - second; first <= 0 || second <= 0 || off.Abs() > 2*time.Microsecond {
		s.Errorf("%s and %s make %s", first, second, both)
	}
	if back := elapsed(2, 0); back != -both {
		s.Errorf("%s from the first event to the last, and %s back", both, back)
	}
	plain := s.event()
	s.must(s.d.EventRecord(0, plain, stream))
	s.must(s.d.EventSynchronize(0, plain))
	if _, err := s.d.EventElapsedTime(0, marks[0], plain); !errors.Is(err, driver.ErrInvalid) {
		s.Errorf("EventElapsedTime() to an event without timing = %v", err)
	}
}

// floats writes numbers into host memory.
func floats(b []byte, f func(i int) float32) {
	for i := range len(b) / 4 {
		setFloat(b, i, f(i))
	}
}

func testKernels(s *suite) {
	const n = 1000 // no multiple of the block
	f, stream := s.axpy(), s.stream()
	r, err := s.d.FuncGetAttributes(0, f)
	s.must(err)
	if r.Registers < 1 || r.LocalBytes != 0 || r.MaxThreads < 128 {
		s.Errorf("FuncGetAttributes() = %+v", r)
	}
	x, y := s.alloc(4*n), s.alloc(4*n)
	hx, hy := s.hostMemory(4*n), s.hostMemory(4*n)
	floats(hx, func(i int) float32 { return float32(i) })
	floats(hy, func(i int) float32 { return 1 })
	s.must(s.d.MemcpyHtoDAsync(0, x, hx, stream))
	s.must(s.d.MemcpyHtoDAsync(0, y, hy, stream))
	l := driver.Launch{Function: f, Grid: driver.Dim{X: (n + 127) / 128}, Block: driver.Dim{X: 128}}
	l.Args.Pointer(y).Pointer(x).Int32(n).Float32(0.5)
	s.must(s.d.LaunchKernel(0, &l, stream))
	l.Args.Reset() // the launch was copied
	s.must(s.d.MemcpyDtoHAsync(0, hy, y, stream))
	s.must(s.d.StreamSynchronize(0, stream))
	for i := range n {
		if got, want := getFloat(hy, i), 1+0.5*float32(i); got != want {
			s.Fatalf("y[%d] = %g, want %g", i, got, want)
		}
	}
	s.must(s.d.FuncSetMaxDynamicShared(0, f, 32<<10))
	if p, err := s.d.DeviceProperties(0); err == nil && p.Major >= 9 {
		l.Args.Pointer(y).Pointer(x).Int32(n).Float32(-0.5)
		l.Overlap = true
		s.must(s.d.LaunchKernel(0, &l, stream))
		s.must(s.d.MemcpyDtoHAsync(0, hy, y, stream))
		s.must(s.d.StreamSynchronize(0, stream))
		if getFloat(hy, n-1) != 1 {
			s.Errorf("after an overlapping launch y[%d] = %g, want 1", n-1, getFloat(hy, n-1))
		}
	}
}

func testModules(s *suite) {
	if _, err := s.d.ModuleLoadData(0, []byte("this is no PTX")); err == nil || driver.IsContextLost(err) {
		s.Errorf("ModuleLoadData() of a text = %v", err)
	}
	m, err := s.d.ModuleLoadData(0, PTX)
	s.must(err)
	s.later(func() error { return s.d.ModuleUnload(0, m) })
	if _, err := s.d.ModuleGetFunction(0, m, "gemm"); err == nil || !strings.Contains(err.Error(), "gemm") {
		s.Errorf("ModuleGetFunction() of a kernel that is not there = %v", err)
	}
}

func testGraphs(s *suite) {
	const n = 300
	f, stream := s.axpy(), s.stream()
	x, y := s.alloc(4*n), s.alloc(4*n)
	host := s.hostMemory(4 * n)
	floats(host, func(i int) float32 { return 1 })
	s.must(s.d.MemcpyHtoDAsync(0, x, host, stream))
	s.must(s.d.MemcpyHtoDAsync(0, y, host, stream))
	s.must(s.d.StreamSynchronize(0, stream))

	s.must(s.d.StreamBeginCapture(0, stream))
	l := driver.Launch{Function: f, Grid: driver.Dim{X: 3}, Block: driver.Dim{X: 128}}
	l.Args.Pointer(y).Pointer(x).Int32(n).Float32(1)
	s.must(s.d.LaunchKernel(0, &l, stream))
	s.must(s.d.MemcpyDtoDAsync(0, x, y, 4*n, stream)) // so y doubles with each replay
	g, err := s.d.StreamEndCapture(0, stream)
	s.must(err)
	s.later(func() error { return s.d.GraphDestroy(0, g) })
	for range 5 {
		s.must(s.d.GraphLaunch(0, g, stream))
	}
	s.must(s.d.MemcpyDtoHAsync(0, host, y, stream))
	s.must(s.d.StreamSynchronize(0, stream))
	for i := range n {
		if got := getFloat(host, i); got != 32 {
			s.Fatalf("y[%d] = %g after five replays, want 32", i, got)
		}
	}
}

// What a map holds is the driver's business: equal ones are equal, and all else matters.
func testTensorMaps(s *suite) {
	good := driver.TensorMap{Address: s.alloc(1 << 20), Rows: 300, Columns: 200, Stride: 512, BoxRows: 64, BoxColumns: 64}
	seen := map[driver.EncodedTensorMap]string{}
	for name, change := range map[string]func(m *driver.TensorMap){
		"as it is": func(*driver.TensorMap) {}, "address": func(m *driver.TensorMap) { m.Address += 16 }, "rows": func(m *driver.TensorMap) { m.Rows++ },
		"columns": func(m *driver.TensorMap) { m.Columns++ }, "stride": func(m *driver.TensorMap) { m.Stride += 16 },
		"rows of boxes": func(m *driver.TensorMap) { m.BoxRows++ }, "columns of boxes": func(m *driver.TensorMap) { m.BoxColumns -= 8 },
	} {
		m := good
		change(&m)
		encoded, err := s.d.TensorMapEncode(0, &m)
		s.must(err)
		again, err := s.d.TensorMapEncode(0, &m)
		s.must(err)
		if other, is := seen[encoded]; is || again != encoded {
			s.Errorf("%s: the map is that of %q, or another one the second time", name, other)
		}
		seen[encoded] = name
	}
	for name, change := range map[string]func(m *driver.TensorMap){
		"no address": func(m *driver.TensorMap) { m.Address = 0 }, "an odd address": func(m *driver.TensorMap) { m.Address += 8 },
		"no rows": func(m *driver.TensorMap) { m.Rows = 0 }, "too many columns": func(m *driver.TensorMap) { m.Columns = 1<<32 + 1 },
		"rows that overlap": func(m *driver.TensorMap) { m.Stride = 384 }, "an odd stride": func(m *driver.TensorMap) { m.Stride = 520 },
		"a stride that is too long": func(m *driver.TensorMap) { m.Stride = 1 << 40 }, "a box that is too high": func(m *driver.TensorMap) { m.BoxRows = 257 },
		"an empty box": func(m *driver.TensorMap) { m.BoxColumns = 0 }, "a box that is too wide": func(m *driver.TensorMap) { m.BoxColumns = 72 },
		"a box of odd rows": func(m *driver.TensorMap) { m.BoxColumns = 60 },
	} {
		m := good
		change(&m)
		if _, err := s.d.TensorMapEncode(0, &m); !errors.Is(err, driver.ErrInvalid) {
			s.Errorf("%s: %v", name, err)
		}
	}
}

func testInvalid(s *suite) {
	stream := s.stream()
	p := s.alloc(64)
	for name, err := range map[string]error{
		"MemGetInfo of device -1":        second(s.d.MemGetInfo(-1)),
		"StreamCreate on no device":      first(s.d.StreamCreate(s.d.DeviceCount())),
		"MemAlloc of 0":                  first(s.d.MemAlloc(0, 0)),
		"MemAlloc of -1":                 first(s.d.MemAlloc(0, -1)),
		"MemHostAlloc of 0":              noBytes(s.d.MemHostAlloc(0, 0)),
		"DeviceProperties of device 999": noProperties(s.d.DeviceProperties(999)),
	} {
		if !errors.Is(err, driver.ErrInvalid) {
			s.Errorf("%s: %v", name, err)
		}
	}
	s.must(s.d.MemsetD8Async(0, p, 0, 64, stream)) // goes on
	s.must(s.d.StreamSynchronize(0, stream))
}

func first(_ uint64, err error) error                   { return err }
func second(_, _ int64, err error) error                { return err }
func noBytes(_ []byte, err error) error                 { return err }
func noProperties(_ driver.Properties, err error) error { return err }

func testSharing(s *suite) {
	a, b := s.alloc(2<<20), s.alloc(2<<20)
	ha, err := s.d.IpcGetMemHandle(0, a)
	s.must(err)
	hb, err := s.d.IpcGetMemHandle(0, b)
	s.must(err)
	again, err := s.d.IpcGetMemHandle(0, a)
	s.must(err)
	if ha == hb || ha != again {
		s.Error("handles do not tell allocations apart")
	}
}
