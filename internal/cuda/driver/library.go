package driver

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/dynctl/dynctl/internal/dynlib"
)

// libraryNames lists the file names of libcuda. The number has never changed.
var libraryNames = []string{"libcuda.so.1"}

// functions are the addresses of libcuda's functions. A suffix _v2 is part of the name
// that programs are linked with: cuda.h renames what programs write.
type functions struct {
	init, getVersion                                                     uintptr
	deviceGetCount, deviceGet, deviceGetName, deviceGetUUID              uintptr
	deviceGetAttribute, deviceTotalMem                                   uintptr
	primaryCtxRetain, primaryCtxRelease, ctxSetCurrent                   uintptr
	memGetInfo, memAlloc, memFree, memHostAlloc, memFreeHost, memsetD8   uintptr
	memcpyDtoD, memcpyHtoD, memcpyDtoH                                   uintptr
	ipcGetMemHandle, ipcOpenMemHandle, ipcCloseMemHandle                 uintptr
	streamCreate, streamDestroy, streamSynchronize, streamWaitEvent      uintptr
	eventCreate, eventDestroy, eventRecord, eventQuery, eventSynchronize uintptr
	eventElapsedTime                                                     uintptr
	moduleLoadDataEx, moduleUnload, moduleGetFunction                    uintptr
	funcGetAttribute, funcSetAttribute, launchKernel                     uintptr
	beginCapture, endCapture                                             uintptr
	graphInstantiate, graphDestroy, graphExecDestroy, graphLaunch        uintptr
	launchKernelEx, tensorMapEncode                                      uintptr // optional, as the next
	deviceCanAccessPeer, ctxEnablePeerAccess, memcpyPeer                 uintptr
	openMemHandle                                                        func(address *uint64, handle ipcHandle, flags uint32) int32
}

// ipcHandle is CUipcMemHandle, the one structure that the driver takes by value.
type ipcHandle struct{ Reserved [HandleBytes]byte }

func (f *functions) table() map[string]*uintptr {
	return map[string]*uintptr{
		"cuInit": &f.init, "cuDriverGetVersion": &f.getVersion,
		"cuDeviceGetCount": &f.deviceGetCount, "cuDeviceGet": &f.deviceGet, "cuDeviceGetName": &f.deviceGetName,
		"cuDeviceGetUuid_v2": &f.deviceGetUUID, "cuDeviceGetAttribute": &f.deviceGetAttribute, "cuDeviceTotalMem_v2": &f.deviceTotalMem,
		"cuDevicePrimaryCtxRetain": &f.primaryCtxRetain, "cuDevicePrimaryCtxRelease_v2": &f.primaryCtxRelease,
		"cuCtxSetCurrent": &f.ctxSetCurrent,
		"cuMemGetInfo_v2": &f.memGetInfo, "cuMemAlloc_v2": &f.memAlloc, "cuMemFree_v2": &f.memFree,
		"cuMemHostAlloc": &f.memHostAlloc, "cuMemFreeHost": &f.memFreeHost, "cuMemsetD8Async": &f.memsetD8,
		"cuMemcpyDtoDAsync_v2": &f.memcpyDtoD, "cuMemcpyHtoDAsync_v2": &f.memcpyHtoD, "cuMemcpyDtoHAsync_v2": &f.memcpyDtoH,
		"cuIpcGetMemHandle": &f.ipcGetMemHandle, "cuIpcOpenMemHandle_v2": &f.ipcOpenMemHandle, "cuIpcCloseMemHandle": &f.ipcCloseMemHandle,
		"cuStreamCreateWithPriority": &f.streamCreate, "cuStreamDestroy_v2": &f.streamDestroy,
		"cuStreamSynchronize": &f.streamSynchronize, "cuStreamWaitEvent": &f.streamWaitEvent,
		"cuEventCreate": &f.eventCreate, "cuEventDestroy_v2": &f.eventDestroy, "cuEventRecord": &f.eventRecord,
		"cuEventQuery": &f.eventQuery, "cuEventSynchronize": &f.eventSynchronize, "cuEventElapsedTime": &f.eventElapsedTime,
		"cuModuleLoadDataEx": &f.moduleLoadDataEx, "cuModuleUnload": &f.moduleUnload, "cuModuleGetFunction": &f.moduleGetFunction,
		"cuFuncGetAttribute": &f.funcGetAttribute, "cuFuncSetAttribute": &f.funcSetAttribute, "cuLaunchKernel": &f.launchKernel,
		"cuStreamBeginCapture_v2": &f.beginCapture, "cuStreamEndCapture": &f.endCapture,
		"cuGraphInstantiateWithFlags": &f.graphInstantiate, "cuGraphDestroy": &f.graphDestroy,
		"cuGraphExecDestroy": &f.graphExecDestroy, "cuGraphLaunch": &f.graphLaunch,
	}
}

// Open loads the driver of this machine and looks for its devices.
func Open() (Driver, error) {
	d, err := open(libraryNames...)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func open(names ...string) (*CUDA, error) {
	lib, err := dynlib.Open(names...)
	if errors.Is(err, dynlib.ErrCompiledOut) {
		return nil, fmt.Errorf("%w: %w", ErrNoLibrary, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w; install NVIDIA's driver, or start the container with its GPUs (--gpus all)", ErrNoLibrary, err)
	}
	d := &CUDA{}
	// What every driver has comes first, so that an old one is named by its version and
	// not by the function that it lacks.
	if err := lib.Bind(map[string]*uintptr{"cuInit": &d.fn.init, "cuDriverGetVersion": &d.fn.getVersion}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	var version int32
	if r := result(dynlib.Call(d.fn.getVersion, uintptr(unsafe.Pointer(&version)))); r != Success {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, &Error{Call: "cuDriverGetVersion", Device: -1, Result: r})
	}
	if d.version = Version(version); d.version < Oldest {
		return nil, fmt.Errorf("%w: it supports CUDA %s, want %s or later: update NVIDIA's driver to release 525 or later", ErrTooOld, d.version, Oldest)
	}
	if err := lib.Bind(d.fn.table()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTooOld, err)
	}
	for name, address := range map[string]*uintptr{
		"cuLaunchKernelEx": &d.fn.launchKernelEx, "cuDeviceCanAccessPeer": &d.fn.deviceCanAccessPeer,
		"cuCtxEnablePeerAccess": &d.fn.ctxEnablePeerAccess, "cuMemcpyPeerAsync": &d.fn.memcpyPeer,
		"cuTensorMapEncodeTiled": &d.fn.tensorMapEncode,
	} {
		_ = lib.Bind(map[string]*uintptr{name: address}) // who calls it says when it is missing
	}
	dynlib.Func(&d.fn.openMemHandle, d.fn.ipcOpenMemHandle)
	return d, d.start()
}

// start initializes the driver and counts devices.
func (d *CUDA) start() error {
	var count int32
	err := d.call("cuInit", -1, dynlib.Call(d.fn.init, 0))
	if err == nil {
		err = d.call("cuDeviceGetCount", -1, dynlib.Call(d.fn.deviceGetCount, uintptr(unsafe.Pointer(&count))))
	}
	switch {
	case errors.Is(err, ErrNoDevice):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	case count < 1:
		return fmt.Errorf("%w: %s", ErrNoDevice, NoDevice)
	}
	d.devices = make([]context, count)
	for i := range d.devices {
		if err := d.call("cuDeviceGet", i, dynlib.Call(d.fn.deviceGet, uintptr(unsafe.Pointer(&d.devices[i].device)), uintptr(i))); err != nil {
			return fmt.Errorf("%w: %w", ErrUnusable, err)
		}
	}
	return nil
}

// result reads what a function returned: an int, which fills half of the register.
func result(r uintptr) Result { return Result(int32(r)) }

// call makes an error of what a function returned.
func (d *CUDA) call(name string, device int, r uintptr) error {
	if r := result(r); r != Success {
		return &Error{Call: name, Device: device, Result: r}
	}
	return nil
}

// at is the memory that C points to.
func at(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// cstring returns text for C.
func cstring(s string) []byte { return append([]byte(s), 0) }
