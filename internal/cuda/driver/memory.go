package driver

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/dynctl/dynctl/internal/dynlib"
)

// positive refuses sizes that the driver would take for huge ones.
func positive(what string, n int64) error {
	if n <= 0 {
		return fmt.Errorf("%w: %s of %d bytes", ErrInvalid, what, n)
	}
	return nil
}

// handle refuses 0, which names the legacy default stream or nothing.
func handle(what string, h uint64) error {
	if h == 0 {
		return fmt.Errorf("%w: %s 0", ErrInvalid, what)
	}
	return nil
}

// MemAlloc implements Driver.
func (d *CUDA) MemAlloc(device int, size int64) (address uint64, err error) {
	if err := positive("allocation", size); err != nil {
		return 0, err
	}
	if err := d.enter(device); err != nil {
		return 0, err
	}
	defer leave()
	err = d.call("cuMemAlloc", device, dynlib.Call(d.fn.memAlloc, uintptr(unsafe.Pointer(&address)), uintptr(size)))
	var e *Error
	if errors.As(err, &e) && e.Result == OutOfMemory {
		e.Detail = fmt.Sprintf("%d bytes asked for", size)
		if free, total, err := d.MemGetInfo(device); err == nil {
			e.Detail += fmt.Sprintf(", %d of %d free", free, total)
		}
	}
	return address, err
}

// MemFree implements Driver.
func (d *CUDA) MemFree(device int, address uint64) error {
	return d.simple("cuMemFree", device, d.fn.memFree, "address", address)
}

// simple calls a function whose one argument is a handle.
func (d *CUDA) simple(name string, device int, fn uintptr, what string, h uint64) error {
	if err := handle(what, h); err != nil {
		return err
	}
	if err := d.enter(device); err != nil {
		return err
	}
	defer leave()
	return d.call(name, device, dynlib.Call(fn, uintptr(h)))
}

// hostPortable lets all devices use page-locked memory.
const hostPortable = 1

// MemHostAlloc implements Driver.
func (d *CUDA) MemHostAlloc(device int, size int64) ([]byte, error) {
	if err := positive("allocation", size); err != nil {
		return nil, err
	}
	if err := d.enter(device); err != nil {
		return nil, err
	}
	defer leave()
	var p uintptr
	if err := d.call("cuMemHostAlloc", device, dynlib.Call(d.fn.memHostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(size), hostPortable)); err != nil {
		var e *Error
		if errors.As(err, &e) && e.Result == OutOfMemory {
			e.Detail = fmt.Sprintf("%d bytes of page-locked host memory asked for", size)
		}
		return nil, err
	}
	return unsafe.Slice((*byte)(at(p)), size), nil
}

// MemFreeHost implements Driver.
func (d *CUDA) MemFreeHost(device int, mem []byte) error {
	return d.simple("cuMemFreeHost", device, d.fn.memFreeHost, "address", uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))))
}

// MemsetD8Async implements Driver.
func (d *CUDA) MemsetD8Async(device int, dst uint64, value byte, n int64, stream uint64) error {
	return d.inStream("cuMemsetD8Async", device, stream, n, dst, func() uintptr {
		return dynlib.Call(d.fn.memsetD8, uintptr(dst), uintptr(value), uintptr(n), uintptr(stream))
	})
}

// MemcpyDtoDAsync implements Driver.
func (d *CUDA) MemcpyDtoDAsync(device int, dst, src uint64, n int64, stream uint64) error {
	if err := handle("address", src); err != nil {
		return err
	}
	return d.inStream("cuMemcpyDtoDAsync", device, stream, n, dst, func() uintptr {
		return dynlib.Call(d.fn.memcpyDtoD, uintptr(dst), uintptr(src), uintptr(n), uintptr(stream))
	})
}

// MemcpyHtoDAsync implements Driver.
func (d *CUDA) MemcpyHtoDAsync(device int, dst uint64, src []byte, stream uint64) error {
	return d.inStream("cuMemcpyHtoDAsync", device, stream, int64(len(src)), dst, func() uintptr {
		return dynlib.Call(d.fn.memcpyHtoD, uintptr(dst), uintptr(unsafe.Pointer(unsafe.SliceData(src))), uintptr(len(src)), uintptr(stream))
	})
}

// MemcpyDtoHAsync implements Driver.
func (d *CUDA) MemcpyDtoHAsync(device int, dst []byte, src uint64, stream uint64) error {
	return d.inStream("cuMemcpyDtoHAsync", device, stream, int64(len(dst)), src, func() uintptr {
		return dynlib.Call(d.fn.memcpyDtoH, uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(src), uintptr(len(dst)), uintptr(stream))
	})
}

// inStream puts work on n bytes at a device address into a stream.
func (d *CUDA) inStream(name string, device int, stream uint64, n int64, address uint64, f func() uintptr) error {
	if err := errors.Join(positive(name, n), handle("stream", stream), handle("address", address)); err != nil {
		return err
	}
	if err := d.enter(device); err != nil {
		return err
	}
	defer leave()
	return d.call(name, device, f())
}

// IpcGetMemHandle implements Driver.
func (d *CUDA) IpcGetMemHandle(device int, address uint64) (h [HandleBytes]byte, err error) {
	if err := handle("address", address); err != nil {
		return h, err
	}
	if err := d.enter(device); err != nil {
		return h, err
	}
	defer leave()
	return h, d.call("cuIpcGetMemHandle", device, dynlib.Call(d.fn.ipcGetMemHandle, uintptr(unsafe.Pointer(&h)), uintptr(address)))
}

// ipcLazyPeerAccess is the one flag there is, and required.
const ipcLazyPeerAccess = 1

// IpcOpenMemHandle implements Driver.
func (d *CUDA) IpcOpenMemHandle(device int, h [HandleBytes]byte) (address uint64, err error) {
	if err := d.enter(device); err != nil {
		return 0, err
	}
	defer leave()
	r := d.fn.openMemHandle(&address, ipcHandle{h}, ipcLazyPeerAccess)
	return address, d.call("cuIpcOpenMemHandle", device, uintptr(r))
}

// IpcCloseMemHandle implements Driver.
func (d *CUDA) IpcCloseMemHandle(device int, address uint64) error {
	return d.simple("cuIpcCloseMemHandle", device, d.fn.ipcCloseMemHandle, "address", address)
}
