package cudaipc

// Name is the name of this transport.
const Name = "cudaipc"

// HandleBytes is the size of a memory handle.
const HandleBytes = 64

// Driver lists the functions of the CUDA driver that this package needs, with the driver's names. A
// binding satisfies it without knowing this package. Devices are those visible to the
// process, from 0 on, each with one context, which the driver makes current by itself;
// addresses, streams and events are the driver's. All methods may be called by several
// goroutines at the same time.
type Driver interface {
	// DeviceCount is the number of visible devices.
	DeviceCount() int
	// DeviceUUID tells a device from all others of the machine, whatever its index. A
	// slice of a device (MIG) has its own.
	DeviceUUID(device int) ([16]byte, error)
	Allocator
	IPC
	Queues
}

// Allocator allocates memory of devices.
type Allocator interface {
	// MemAlloc is cuMemAlloc: memory that a handle can stand for. MemFree frees it.
	MemAlloc(device int, size int64) (address uint64, err error)
	MemFree(device int, address uint64) error
}

// IPC shares allocations between processes.
type IPC interface {
	// IpcGetMemHandle names an allocation, by its first address, to other processes.
	IpcGetMemHandle(device int, address uint64) ([HandleBytes]byte, error)
	// IpcOpenMemHandle maps an allocation of another process, once per device and
	// process; the owner's device has this index here. IpcCloseMemHandle ends that.
	IpcOpenMemHandle(device int, handle [HandleBytes]byte) (address uint64, err error)
	IpcCloseMemHandle(device int, address uint64) error
}

// Queues are streams of copies and the events that tell of their ends.
type Queues interface {
	// StreamCreate makes a stream that does not wait for others (non-blocking).
	StreamCreate(device int) (stream uint64, err error)
	StreamDestroy(device int, stream uint64) error
	// StreamSynchronize returns when all work of the stream has ended. After an error
	// the context is lost: nothing runs in it any more.
	StreamSynchronize(device int, stream uint64) error

	// The copies begin after the work that is in the stream, and return before they have
	// ended. The memory must not be touched or freed until then. The addresses of DtoD
	// may belong to different devices.
	MemcpyDtoDAsync(device int, dst, src uint64, n int64, stream uint64) error
	MemcpyHtoDAsync(device int, dst uint64, src []byte, stream uint64) error
	MemcpyDtoHAsync(device int, dst []byte, src uint64, stream uint64) error

	// EventCreate makes an event without timing. EventRecord puts it behind the work that
	// is in the stream, EventQuery reports whether that has ended; after an error the
	// context is lost.
	EventCreate(device int) (event uint64, err error)
	EventDestroy(device int, event uint64) error
	EventRecord(device int, event, stream uint64) error
	EventQuery(device int, event uint64) (done bool, err error)
}
