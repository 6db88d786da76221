package driver

import "time"

// HandleBytes is the size of a memory handle for other processes.
const HandleBytes = 64

// Driver is the part of the CUDA driver that engines and the data path use. Devices are
// those visible to the process, from 0 on.
type Driver interface {
	Devices
	Memory
	Sharing
	Peers
	Streams
	Events
	Modules
	Graphs
	// Close gives the contexts back. Everything made through the driver must be freed
	// before.
	Close() error
}

// Devices says what there is.
type Devices interface {
	// Version is the CUDA version of the driver, the highest PTX it compiles.
	Version() Version
	// DeviceCount is the number of visible devices, at least 1.
	DeviceCount() int
	// DeviceUUID tells a device from all others of the machine, whatever its index. A
	// slice of a device (MIG) has its own.
	DeviceUUID(device int) ([16]byte, error)
	// DeviceProperties returns the properties of a device, which do not change.
	DeviceProperties(device int) (Properties, error)
	// MemGetInfo returns the free and the total bytes of the device's memory.
	MemGetInfo(device int) (free, total int64, err error)
}

// Memory allocates and copies. Copies begin after the work that is in the stream, and
// return before they have ended: memory must not be touched or freed until an event or
// StreamSynchronize says so. Host memory must be off the Go heap: of MemHostAlloc, or
// mapped.
type Memory interface {
	// MemAlloc is cuMemAlloc: memory that a handle can stand for. Without room it returns
	// ErrOutOfMemory and the figures.
	MemAlloc(device int, size int64) (address uint64, err error)
	MemFree(device int, address uint64) error
	// MemHostAlloc allocates page-locked memory of the host, which copies read and write
	// without the processor.
	MemHostAlloc(device int, size int64) ([]byte, error)
	MemFreeHost(device int, mem []byte) error

	MemsetD8Async(device int, dst uint64, value byte, n int64, stream uint64) error
	// The addresses may belong to different devices.
	MemcpyDtoDAsync(device int, dst, src uint64, n int64, stream uint64) error
	MemcpyHtoDAsync(device int, dst uint64, src []byte, stream uint64) error
	MemcpyDtoHAsync(device int, dst []byte, src uint64, stream uint64) error
}

// Sharing gives memory to other processes of the machine (CUDA IPC).
type Sharing interface {
	// IpcGetMemHandle names an allocation, by its first address, to other processes.
	IpcGetMemHandle(device int, address uint64) ([HandleBytes]byte, error)
	// IpcOpenMemHandle maps an allocation of another process, once per device and
	// process; the owner's device has this index here. IpcCloseMemHandle ends that.
	IpcOpenMemHandle(device int, handle [HandleBytes]byte) (address uint64, err error)
	IpcCloseMemHandle(device int, address uint64) error
}

// Peers lets devices of the process use each other's memory.
type Peers interface {
	// CanAccessPeer reports whether kernels of a device can use memory of another one: over
	// NVLink, or over PCIe where the machine allows it.
	CanAccessPeer(device, peer int) (bool, error)
	// EnablePeerAccess lets kernels of a device use memory of another one, whenever it is
	// allocated, until the driver is closed. Once more is no mistake.
	EnablePeerAccess(device, peer int) error
	// MemcpyPeerAsync copies from the memory of a device to that of another one, over the
	// host where neither has access to the other. The stream is one of either device, and
	// device that one.
	MemcpyPeerAsync(device, dstDevice int, dst uint64, srcDevice int, src uint64, n int64, stream uint64) error
}

// Streams are queues of work; none waits for another by itself (non-blocking).
type Streams interface {
	StreamCreate(device int) (stream uint64, err error)
	// StreamCreateWithPriority makes a stream whose work goes before that of streams with
	// a greater number; numbers outside of the device's range are clamped.
	StreamCreateWithPriority(device, priority int) (stream uint64, err error)
	StreamDestroy(device int, stream uint64) error
	// StreamSynchronize returns when all work of the stream has ended.
	StreamSynchronize(device int, stream uint64) error
	// StreamWaitEvent has later work of the stream wait for the event as it is recorded
	// now; it may be one of another device.
	StreamWaitEvent(device int, stream, event uint64) error
}

// Events mark places in streams.
type Events interface {
	// EventCreate makes an event without timing, which costs the least.
	EventCreate(device int) (event uint64, err error)
	// EventCreateWithTiming makes an event that keeps when it was reached.
	EventCreateWithTiming(device int) (event uint64, err error)
	EventDestroy(device int, event uint64) error
	// EventRecord puts the event behind the work that is in the stream.
	EventRecord(device int, event, stream uint64) error
	// EventQuery reports whether that work has ended; after an error the context is lost.
	EventQuery(device int, event uint64) (done bool, err error)
	EventSynchronize(device int, event uint64) error
	// EventElapsedTime is the time from one event with timing to another by the device's
	// clock, which counts in steps of about half a microsecond; below 0 when start was
	// reached later. Both must have been reached.
	EventElapsedTime(device int, start, end uint64) (time.Duration, error)
}

// Modules are compiled kernels.
type Modules interface {
	// ModuleLoadData compiles PTX for the device, or loads a cubin. The error of a failure
	// has the compiler's log.
	ModuleLoadData(device int, image []byte) (module uint64, err error)
	ModuleUnload(device int, module uint64) error
	// ModuleGetFunction finds a kernel by its name, until the module is unloaded.
	ModuleGetFunction(device int, module uint64, name string) (function uint64, err error)
	// FuncGetAttributes tells what the compiler made of a kernel.
	FuncGetAttributes(device int, function uint64) (Resources, error)
	// FuncSetMaxDynamicShared lets launches ask for so many bytes of shared memory, which
	// more than 48 KiB need.
	FuncSetMaxDynamicShared(device int, function uint64, bytes int) error
	// TensorMapEncode describes a matrix to kernels for compute capability 9.0. It touches
	// no memory of the device, and may be called while a stream is captured.
	TensorMapEncode(device int, m *TensorMap) (EncodedTensorMap, error)
	// LaunchKernel puts a kernel into a stream. The launch is copied.
	LaunchKernel(device int, l *Launch, stream uint64) error
}

// Graphs replay recorded work. While a stream is captured, its calls of Memory and
// LaunchKernel record, and nothing may wait for it; others on the device may allocate and free
// meanwhile. A stream
// that waits for an event which is recorded in a captured one joins the capture, also one of
// another device; it must be joined back: the captured stream waits, in the end, for an event
// that is recorded behind all that the other one got.
type Graphs interface {
	StreamBeginCapture(device int, stream uint64) error
	// StreamEndCapture makes a graph of what was recorded. All memory named by it must
	// live as long as the graph.
	StreamEndCapture(device int, stream uint64) (graph uint64, err error)
	// GraphLaunch puts the work of a graph into a stream. One graph never runs twice at
	// the same time: a later launch waits for the one before.
	GraphLaunch(device int, graph, stream uint64) error
	GraphDestroy(device int, graph uint64) error
}

// Properties describes a device.
type Properties struct {
	Name              string
	UUID              [16]byte
	PCI               string // address, as 0000:3b:00.0
	Major, Minor      int    // compute capability
	Multiprocessors   int
	MemoryBytes       int64
	L2Bytes           int64
	SharedBytes       int  // of a block, after FuncSetMaxDynamicShared
	Integrated        bool // its memory is the host's
	ExclusiveProcess  bool // one process at a time (compute mode)
	ComputeProhibited bool // no process at all (compute mode)
}

// Resources lists the resources that a compiled kernel needs.
type Resources struct {
	Registers   int // of a thread
	LocalBytes  int // of a thread: more than 0 is spilled registers or arrays
	SharedBytes int // of a block, static
	MaxThreads  int // of a block
	BinaryArch  int // 90 for sm_90: what it was compiled for
}

// Dim are sizes in three dimensions; 0 counts as 1.
type Dim struct{ X, Y, Z uint32 }

func (d Dim) orOne() Dim { return Dim{max(d.X, 1), max(d.Y, 1), max(d.Z, 1)} }

// Launch is a kernel with its arguments.
type Launch struct {
	Function    uint64
	Grid, Block Dim
	SharedBytes uint32 // dynamic
	Args        Args
	// Overlap lets the kernel start while the one before it in the stream still runs. The
	// kernel must wait for that one by griddepcontrol.wait (programmatic dependent
	// launch); it needs compute capability 9.0 and CUDA 12.3.
	Overlap bool
}
