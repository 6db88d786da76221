package nvml

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/dynlib/dynlibtest"
)

// library compiles testdata/libnvml.c.
func library(t *testing.T, options ...string) string {
	t.Helper()
	return dynlibtest.Compile(t, "testdata/libnvml.c", options...)
}

func report(t *testing.T, options ...string) cluster.GPUReport {
	t.Helper()
	n, err := open(library(t, options...))
	if err != nil {
		t.Fatal(err)
	}
	r, err := n.Report()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	return r
}

func TestReport(t *testing.T) {
	begin := time.Now()
	got := report(t)
	if got.At.Before(begin) || time.Since(got.At) < 0 {
		t.Errorf("read at %s", got.At)
	}
	want := cluster.GPUReport{At: got.At, Driver: "580.65.06", CUDA: "13.0", GPUs: []cluster.GPU{
		{
			Name: "NVIDIA H200", UUID: "GPU-5a1d", Bus: "00000000:3B:00.0", MemoryBytes: new(int64(150 << 30)), MemoryUsed: new(int64(21 << 30)),
			Utilization: new(0.87), MemoryBusy: new(0.43), PowerWatts: new(612.5), PowerLimit: new(700.0), Temperature: new(61),
			SMClockMHz: new(1785), MaxClockMHz: new(1980), Throttled: []string{"power cap", "too warm"},
			Processes: []cluster.GPUProcess{{PID: 4711, MemoryBytes: new(int64(20 << 30))}, {PID: 4712}},
		},
		{Index: 1, Name: "NVIDIA H200"},
		{Index: 2, Name: "unknown", Failed: "the GPU has fallen off the bus, or cannot be reached"},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Report() = %+v, want %+v", got, want)
	}
	if got := report(t, "-DPROCESSES=65").GPUs[0].Processes; got != nil {
		t.Errorf("of more processes than are listed: %v", got)
	}
	none := report(t, "-DCOUNT=0")
	if len(none.GPUs) != 0 || none.GPUs == nil || !strings.Contains(none.Missing, "has no GPU") {
		t.Errorf("Report() without GPUs = %+v", none)
	}
}

// TestMissingFunctions has a library of a release that lacks some: their figures are left
// out, and nothing else.
func TestMissingFunctions(t *testing.T) {
	r, old := report(t).GPUs[0], report(t, "-DOLD").GPUs[0]
	r.Throttled, r.Processes = nil, nil
	if !reflect.DeepEqual(old, r) {
		t.Errorf("Report() = %+v, want %+v", old, r)
	}
	n, err := open(library(t))
	if err != nil {
		t.Fatal(err)
	}
	full, err := n.Report()
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range n.fn.optional() {
		was := *p
		*p = 0
		got, err := n.Report()
		got.At = full.At
		if err != nil || len(got.GPUs) != len(full.GPUs) || reflect.DeepEqual(got, full) {
			t.Errorf("without %s: %+v, %v", name, got, err)
		}
		*p = was
	}
}

func TestStates(t *testing.T) {
	if _, err := open("libnosuchnvml.so.1"); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("without a library: %v", err)
	}
	_, err := open(library(t, "-DINIT_RESULT=9"))
	if !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "the driver is not loaded") {
		t.Errorf("without a driver: %v", err)
	}
	_, err = open(library(t, "-DINIT_RESULT=4711"))
	if !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "NVML return 4711") {
		t.Errorf("with an unknown return: %v", err)
	}
}

// TestThisMachine reads real figures, where there are some.
func TestThisMachine(t *testing.T) {
	n, err := Open()
	if err != nil {
		t.Skip(err)
	}
	defer n.Close()
	r, err := n.Report()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range r.GPUs {
		if g.Failed == "" && (g.Name == "" || g.MemoryBytes == nil || *g.MemoryBytes < *g.MemoryUsed) {
			t.Errorf("%+v", g)
		}
	}
}

// TestLayouts compares images of structures with nvml.h (12.4, amd64).
func TestLayouts(t *testing.T) {
	var (
		p pciInfo
		m memoryInfo
		i processInfo
	)
	for _, f := range []struct {
		name      string
		got, want uintptr
	}{
		{"nvmlPciInfo_t.busId", unsafe.Offsetof(p.busID), 36},
		{"nvmlPciInfo_t", unsafe.Sizeof(p), 68},
		{"nvmlMemory_v2_t.total", unsafe.Offsetof(m.total), 8},
		{"nvmlMemory_v2_t.reserved", unsafe.Offsetof(m.reserved), 16},
		{"nvmlMemory_v2_t.used", unsafe.Offsetof(m.used), 32},
		{"nvmlMemory_v2_t", unsafe.Sizeof(m), 40},
		{"nvmlMemory_v2", uintptr(memoryVersion), 0x2000028},
		{"nvmlProcessInfo_t.usedGpuMemory", unsafe.Offsetof(i.memory), 8},
		{"nvmlProcessInfo_t", unsafe.Sizeof(i), 24},
		{"nvmlUtilization_t", unsafe.Sizeof(utilization{}), 8},
	} {
		if f.got != f.want {
			t.Errorf("%s: %#x, want %#x", f.name, f.got, f.want)
		}
	}
}
