package driver

import (
	"testing"
	"unsafe"
)

// TestLayouts compares images of structures with the offsets of cuda.h (12.4, amd64).
func TestLayouts(t *testing.T) {
	var (
		c launchConfig
		a launchAttribute
		h ipcHandle
		b launchBlock
	)
	for _, f := range []struct {
		name      string
		got, want uintptr
	}{
		{"CUlaunchConfig.gridDimX", unsafe.Offsetof(c.grid), 0},
		{"CUlaunchConfig.blockDimX", unsafe.Offsetof(c.block), 12},
		{"CUlaunchConfig.sharedMemBytes", unsafe.Offsetof(c.sharedBytes), 24},
		{"CUlaunchConfig.hStream", unsafe.Offsetof(c.stream), 32},
		{"CUlaunchConfig.attrs", unsafe.Offsetof(c.attributes), 40},
		{"CUlaunchConfig.numAttrs", unsafe.Offsetof(c.count), 48},
		{"CUlaunchConfig", unsafe.Sizeof(c), 56},
		{"CUlaunchAttribute.value", unsafe.Offsetof(a.value), 8},
		{"CUlaunchAttribute", unsafe.Sizeof(a), 72},
		{"CUipcMemHandle", unsafe.Sizeof(h), 64},
		{"arguments, which must be aligned to 16", unsafe.Offsetof(b.args) % 16, 0},
	} {
		if f.got != f.want {
			t.Errorf("%s: %d, want %d", f.name, f.got, f.want)
		}
	}
}

func TestArgs(t *testing.T) {
	var a Args
	a.Int32(1).Pointer(2).Float32(1).Int32(-1).Int32(3).Int64(-2)
	const want = "\x01\x00\x00\x00\x00\x00\x00\x00" + "\x02\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x80\x3f\xff\xff\xff\xff" +
		"\x03\x00\x00\x00\x00\x00\x00\x00" + "\xfe\xff\xff\xff\xff\xff\xff\xff"
	if string(a.Bytes()) != want {
		t.Errorf("%q, want %q", a.Bytes(), want)
	}
}
