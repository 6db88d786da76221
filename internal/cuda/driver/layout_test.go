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
		e EncodedTensorMap
		m tensorMapBlock
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
		{"CUtensorMap", unsafe.Sizeof(e), 128},
		{"room for a CUtensorMap, wherever it is aligned", unsafe.Sizeof(m.encoded), 128 + 64},
		{"globalDim, which must be aligned to 8", unsafe.Offsetof(m.sizes) % 8, 0},
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
	a.Reset()
	one, two := EncodedTensorMap{1, 127: 2}, EncodedTensorMap{3, 127: 4}
	a.TensorMap(&one).Int32(5).TensorMap(&two)
	if b := a.Bytes(); len(b) != 320 || b[0] != 1 || b[127] != 2 || b[128] != 5 || b[192] != 3 || b[319] != 4 {
		t.Errorf("tensor maps lie in %d bytes: %v", len(b), b)
	}
}
