package nvml

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Report reads the figures of all GPUs. A machine whose driver has none gets a report
// that says so.
func (n *NVML) Report() (cluster.GPUReport, error) {
	var count uint32
	if err := call(n.fn.count, uintptr(unsafe.Pointer(&count))); err != nil {
		return cluster.GPUReport{}, fmt.Errorf("count GPUs: %w", err)
	}
	r := cluster.GPUReport{At: time.Now(), Driver: n.driverVersion(), CUDA: n.cudaVersion(), GPUs: make([]cluster.GPU, count)}
	for i := range r.GPUs {
		r.GPUs[i] = n.gpu(i)
	}
	if count == 0 {
		r.Missing = "NVIDIA's driver runs and has no GPU: a container gets some by --gpus all"
	}
	return r, nil
}

func (n *NVML) driverVersion() string {
	var b [textBytes]byte
	if call(n.fn.driver, uintptr(unsafe.Pointer(&b)), textBytes) != nil {
		return ""
	}
	return untilZero(b[:])
}

func (n *NVML) cudaVersion() string {
	var v int32
	if call(n.fn.cuda, uintptr(unsafe.Pointer(&v))) != nil {
		return ""
	}
	return fmt.Sprintf("%d.%d", v/1000, v%1000/10)
}

func (n *NVML) gpu(index int) cluster.GPU {
	g := cluster.GPU{Index: index}
	var h uintptr
	if err := call(n.fn.handle, uintptr(index), uintptr(unsafe.Pointer(&h))); err != nil {
		g.Name, g.Failed = "unknown", err.Error()
		return g
	}
	if g.Name = text(n.fn.name, h); g.Name == "" {
		g.Name = "unknown"
	}
	g.UUID = text(n.fn.uuid, h)
	var pci pciInfo
	if call(n.fn.pci, h, uintptr(unsafe.Pointer(&pci))) == nil {
		g.Bus = untilZero(pci.busID[:])
	}
	memory := memoryInfo{version: memoryVersion}
	if call(n.fn.memory, h, uintptr(unsafe.Pointer(&memory))) == nil {
		total, used := int64(memory.total), int64(memory.used+memory.reserved)
		g.MemoryBytes, g.MemoryUsed = &total, &used
	}
	var use utilization
	if call(n.fn.utilization, h, uintptr(unsafe.Pointer(&use))) == nil {
		gpu, mem := float64(use.gpu)/100, float64(use.memory)/100
		g.Utilization, g.MemoryBusy = &gpu, &mem
	}
	g.PowerWatts, g.PowerLimit = milliwatts(n.fn.power, h), milliwatts(n.fn.limit, h)
	g.Temperature = number(n.fn.temperature, h, temperatureGPU)
	g.SMClockMHz, g.MaxClockMHz = number(n.fn.clock, h, clockSM), number(n.fn.maxClock, h, clockSM)
	var bits uint64
	if call(n.fn.throttled, h, uintptr(unsafe.Pointer(&bits))) == nil {
		for _, r := range throttles {
			if bits&r.bit != 0 {
				g.Throttled = append(g.Throttled, r.word)
			}
		}
	}
	g.Processes = n.processes(h)
	return g
}

func milliwatts(fn, handle uintptr) *float64 {
	var v uint32
	if call(fn, handle, uintptr(unsafe.Pointer(&v))) != nil {
		return nil
	}
	watts := float64(v) / 1000
	return &watts
}

// number asks for one of the figures that a function knows.
func number(fn, handle, which uintptr) *int {
	var v uint32
	if call(fn, handle, which, uintptr(unsafe.Pointer(&v))) != nil {
		return nil
	}
	i := int(v)
	return &i
}

// maxProcesses limits the processes listed per GPU; of a GPU with more, none are listed.
const maxProcesses = 64

func (n *NVML) processes(handle uintptr) []cluster.GPUProcess {
	var infos [maxProcesses]processInfo
	count := uint32(len(infos))
	if call(n.fn.processes, handle, uintptr(unsafe.Pointer(&count)), uintptr(unsafe.Pointer(&infos))) != nil || count > maxProcesses {
		return nil
	}
	out := make([]cluster.GPUProcess, count)
	for i := range out {
		out[i].PID = int(infos[i].pid)
		if infos[i].memory != notAvailable {
			bytes := int64(infos[i].memory)
			out[i].MemoryBytes = &bytes
		}
	}
	return out
}
