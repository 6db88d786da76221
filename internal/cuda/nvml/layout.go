package nvml

import "unsafe"

// pciInfo is nvmlPciInfo_t.
type pciInfo struct {
	legacy                            [16]byte
	domain, bus, device, id, subsysID uint32
	busID                             [32]byte
}

// memoryInfo is nvmlMemory_v2_t.
type memoryInfo struct {
	version                     uint32
	_                           uint32
	total, reserved, free, used uint64
}

// memoryVersion is the structure's size and its version, which the library checks.
const memoryVersion = uint32(unsafe.Sizeof(memoryInfo{})) | 2<<24

// utilization is nvmlUtilization_t, in percent.
type utilization struct{ gpu, memory uint32 }

// processInfo is nvmlProcessInfo_t.
type processInfo struct {
	pid    uint32
	_      uint32
	memory uint64
	_, _   uint32 // instances of a GPU that is divided (MIG)
}

// notAvailable stands for memory of a process that is not known.
const notAvailable = ^uint64(0)

// Which figure a function shall tell.
const (
	clockSM        = 1
	temperatureGPU = 0
)

// throttles are bits of why clocks are lower than they could be. Idling, and settings of
// who owns the GPU, are nothing that anybody must care for.
var throttles = []struct {
	bit  uint64
	word string
}{
	{0x04, "power cap"}, {0x08, "hardware slowdown"}, {0x20, "too warm"}, {0x40, "too hot"}, {0x80, "power brake"},
}
