package driver_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/dynlib"
	"github.com/dynctl/dynctl/internal/dynlib/dynlibtest"
	"github.com/dynctl/dynctl/internal/lab/cuda/drivertest"
)

// library compiles testdata/libcuda.c.
func library(t *testing.T, options ...string) string {
	t.Helper()
	return dynlibtest.Compile(t, "testdata/libcuda.c", options...)
}

func openLibrary(t *testing.T, path string) driver.Driver {
	t.Helper()
	d, err := driver.OpenLibrary(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestSuite runs the suite over the binding and a C library with CUDA's prototypes.
func TestSuite(t *testing.T) {
	path := library(t)
	drivertest.Run(t, func(t *testing.T) driver.Driver { return openLibrary(t, path) })
}

// TestSuiteOnThisMachine runs it on hardware, where there is some.
func TestSuiteOnThisMachine(t *testing.T) {
	d, err := driver.Open()
	if err != nil {
		t.Skip(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	drivertest.Run(t, func(t *testing.T) driver.Driver {
		d, err := driver.Open()
		if err != nil {
			t.Fatal(err)
		}
		return d
	})
}

func TestProperties(t *testing.T) {
	d := openLibrary(t, library(t))
	got, err := d.DeviceProperties(1)
	if err != nil {
		t.Fatal(err)
	}
	want := driver.Properties{
		Name: "Test Device 1", UUID: [16]byte([]byte(strings.Repeat("\x11", 16))), PCI: "0001:3c:00.0", Major: 9, Multiprocessors: 132,
		MemoryBytes: 64 << 20, L2Bytes: 50 << 20, SharedBytes: 227 << 10, ExclusiveProcess: true,
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestHandleByValue: the handle is the one structure that the driver takes by value.
func TestHandleByValue(t *testing.T) {
	d := openLibrary(t, library(t))
	p, err := d.MemAlloc(1, 100)
	if err != nil {
		t.Fatal(err)
	}
	h, err := d.IpcGetMemHandle(1, p)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := d.IpcOpenMemHandle(1, h); got != p || err != nil {
		t.Errorf("IpcOpenMemHandle() = %#x, %v, want %#x", got, err, p)
	}
	h[63]++
	if _, err := d.IpcOpenMemHandle(1, h); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("IpcOpenMemHandle() with another last byte: %v", err)
	}
	if err := errors.Join(d.IpcCloseMemHandle(1, p), d.MemFree(1, p), d.Close()); err != nil {
		t.Error(err)
	}
}

// TestThreads calls from many goroutines for two devices: each call needs its context on
// the thread that it happens to run on.
func TestThreads(t *testing.T) {
	d := openLibrary(t, library(t))
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for range 200 {
				p, err := d.MemAlloc(i%2, 64)
				if err == nil {
					err = d.MemFree(i%2, p)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestStates: each way of having no driver has an error of its own that says what to do.
func TestStates(t *testing.T) {
	_, err := driver.OpenLibrary("libnosuchcuda.so.1")
	if !errors.Is(err, driver.ErrNoLibrary) {
		t.Errorf("without a library: %v", err)
	}
	if !dynlib.Enabled {
		return
	}
	if !strings.Contains(err.Error(), "install NVIDIA's driver") {
		t.Errorf("without a library: %v", err)
	}
	for _, c := range []struct {
		option string
		want   error
		text   string
	}{
		{"-DINIT_RESULT=100", driver.ErrNoDevice, "CUDA_VISIBLE_DEVICES"},
		{"-DDEVICES=0", driver.ErrNoDevice, "nvidia-smi"},
		{"-DVERSION=11040", driver.ErrTooOld, "it supports CUDA 11.4, want 12.0 or later"},
		{"-DINIT_RESULT=803", driver.ErrUnusable, "different releases"},
		{"-DINIT_RESULT=802", driver.ErrUnusable, "fabric manager"},
		{"-DINIT_RESULT=12345", driver.ErrUnusable, "CUDA result 12345"},
	} {
		_, err := driver.OpenLibrary(library(t, c.option))
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v, %q", c.option, err, c.want, c.text)
		}
	}
}

// TestTensorMap: twelve arguments arrive as they should, in an old driver none.
func TestTensorMap(t *testing.T) {
	m := driver.TensorMap{Address: 0x7f0000000010, Rows: 1 << 32, Columns: 3, Stride: 1<<40 - 16, BoxRows: 256, BoxColumns: 8}
	d := openLibrary(t, library(t))
	for range 8 { // wherever the map is made
		encoded, err := d.TensorMapEncode(1, &m)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []uint64{m.Address, m.Rows, m.Columns, m.Stride, uint64(m.BoxRows), uint64(m.BoxColumns)} {
			if got := binary.LittleEndian.Uint64(encoded[8*i:]); got != want {
				t.Errorf("number %d is %#x, want %#x", i, got, want)
			}
		}
		for i, b := range encoded[48:] {
			if b != byte((48+i)*5+3) {
				t.Fatalf("byte %d is %d", 48+i, b)
			}
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	d = openLibrary(t, library(t, "-DWITHOUT_TENSOR_MAPS"))
	if _, err := d.TensorMapEncode(0, &m); !errors.Is(err, driver.ErrTooOld) {
		t.Errorf("TensorMapEncode() = %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestErrors(t *testing.T) {
	d := openLibrary(t, library(t))
	if _, err := d.ModuleLoadData(0, []byte("text")); err == nil || !strings.Contains(err.Error(), "no .version in line 1") {
		t.Errorf("ModuleLoadData() = %v, without the compiler's log", err)
	}
	_, err := d.MemAlloc(0, 1<<40)
	const want = "cuMemAlloc on device 0: out of memory: 1099511627776 bytes asked for, 67108864 of 67108864 free"
	if err == nil || err.Error() != want {
		t.Errorf("MemAlloc() = %v, want %s", err, want)
	}
	if err := d.StreamSynchronize(0, 0); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("StreamSynchronize() of the legacy stream = %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if driver.IsContextLost(&driver.Error{Result: driver.OutOfMemory}) || !driver.IsContextLost(&driver.Error{Result: driver.IllegalAddress}) {
		t.Error("IsContextLost() takes errors for others")
	}
}
