package cluster

import "time"

// GPUReport holds what NVIDIA's driver reports about the GPUs of a node.
type GPUReport struct {
	// At is when the figures were read, by the node's clock. It is zero in a node's
	// inventory, which lists the GPUs without the figures that change.
	At     time.Time `json:"at,omitzero"`
	Driver string    `json:"driver,omitempty"` // release, such as 580.65.06
	CUDA   string    `json:"cuda,omitempty"`   // highest version that the driver supports, such as 13.0
	GPUs   []GPU     `json:"gpus"`
	// Missing says why there are no GPUs; empty when there are some.
	Missing string `json:"missing,omitempty"`
}

// GPU describes one GPU of a node, whichever program computes on it. A GPU that the
// node's engines use is listed as a [Device], too. Figures that the driver does not
// report are null.
type GPU struct {
	Index       int      `json:"index"` // NVML's index, which nvidia-smi shows
	Name        string   `json:"name"`
	UUID        string   `json:"uuid,omitempty"`
	Bus         string   `json:"bus,omitempty"` // address, as 00000000:3B:00.0
	MemoryBytes *int64   `json:"memory_bytes"`
	MemoryUsed  *int64   `json:"memory_used_bytes"` // by all processes, and by what the driver reserves
	Utilization *float64 `json:"utilization_ratio"` // 0 to 1: share of time in which any kernel ran
	MemoryBusy  *float64 `json:"memory_busy_ratio"` // 0 to 1: share of time in which memory was read or written
	PowerWatts  *float64 `json:"power_watts"`
	PowerLimit  *float64 `json:"power_limit_watts"` // the limit in force
	Temperature *int     `json:"temperature_celsius"`
	SMClockMHz  *int     `json:"sm_clock_mhz"`
	MaxClockMHz *int     `json:"sm_clock_max_mhz"`
	// Throttled lists the reasons why the clocks are reduced; an idle GPU has none.
	Throttled []string `json:"throttled,omitempty"`
	// Processes lists the processes that compute on the GPU; null when they are unknown.
	Processes []GPUProcess `json:"processes"`
	// Failed says why the GPU reports no figures; empty when it does.
	Failed string `json:"failed,omitempty"`
}

// GPUProcess is a process that computes on a GPU.
type GPUProcess struct {
	PID         int    `json:"pid"`          // as numbered in the process's own PID namespace or on the host
	MemoryBytes *int64 `json:"memory_bytes"` // GPU memory
}

// Inventory returns the report without the figures that change.
func (r GPUReport) Inventory() GPUReport {
	out := r
	out.At, out.GPUs = time.Time{}, make([]GPU, len(r.GPUs))
	for i, g := range r.GPUs {
		out.GPUs[i] = GPU{
			Index: g.Index, Name: g.Name, UUID: g.UUID, Bus: g.Bus, Failed: g.Failed,
			MemoryBytes: g.MemoryBytes, PowerLimit: g.PowerLimit, MaxClockMHz: g.MaxClockMHz,
		}
	}
	return out
}

// NodeStats holds the figures of a node that change.
type NodeStats struct {
	NodeID string    `json:"node_id"`
	GPU    GPUReport `json:"gpu"`
}

// GPUSupport describes the GPUs and NVIDIA's driver as programs find them on a machine.
// "dynamod gpus" prints it.
type GPUSupport struct {
	State   GPUState     `json:"state"`
	Error   string       `json:"error,omitempty"` // the problem; empty when State is usable
	CUDA    string       `json:"cuda,omitempty"`  // version of the CUDA driver
	Devices []CUDADevice `json:"devices"`
	// Report comes from NVML.
	Report GPUReport `json:"report"`
}

// GPUState says whether programs can compute on the GPUs of a machine.
type GPUState string

// The states of a machine's GPUs.
const (
	GPUsUsable    GPUState = "usable"
	GPUsNoLibrary GPUState = "no-library" // libcuda.so.1 is missing
	GPUsNoDevice  GPUState = "no-device"  // the driver finds no GPU
	GPUsTooOld    GPUState = "too-old"    // the driver is too old
	GPUsUnusable  GPUState = "unusable"   // any other problem, which GPUSupport.Error names
)

// CUDADevice is a GPU, or a slice of one, as the CUDA driver shows it to a process.
type CUDADevice struct {
	Name            string `json:"name"`
	Bus             string `json:"bus"`                // address, as 0000:3b:00.0
	Capability      string `json:"compute_capability"` // such as 9.0
	Multiprocessors int    `json:"multiprocessors"`
	MemoryBytes     int64  `json:"memory_bytes"`
	MemoryFree      int64  `json:"memory_free_bytes"`
	// ComputeMode is default, exclusive (one process at a time) or prohibited (none).
	ComputeMode string `json:"compute_mode"`
	// Kernels lists the targets of the kernels that the device would load, such as sm_80,
	// and sm_90a for the faster ones on compute capability 9.0.
	Kernels []string `json:"kernels,omitempty"`
	Error   string   `json:"error,omitempty"` // why the device cannot be used
}
