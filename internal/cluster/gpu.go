package cluster

import "time"

// GPUReport is what NVIDIA's driver tells of the GPUs of a node.
type GPUReport struct {
	// At is when the figures were read, by the node's clock. It is zero in a node's
	// inventory, which says what GPUs are and has no figures that change.
	At     time.Time `json:"at,omitzero"`
	Driver string    `json:"driver,omitempty"` // release, such as 580.65.06
	CUDA   string    `json:"cuda,omitempty"`   // the highest version that it serves, such as 13.0
	GPUs   []GPU     `json:"gpus"`
	// Missing says why there are no GPUs; empty when there are some.
	Missing string `json:"missing,omitempty"`
}

// GPU is one GPU of a node, whoever computes on it; where the node's engines do, there is a
// [Device], too. Figures that its driver does not tell are null.
type GPU struct {
	Index       int      `json:"index"` // NVML's, which nvidia-smi shows
	Name        string   `json:"name"`
	UUID        string   `json:"uuid,omitempty"`
	Bus         string   `json:"bus,omitempty"` // address, as 00000000:3B:00.0
	MemoryBytes *int64   `json:"memory_bytes"`
	MemoryUsed  *int64   `json:"memory_used_bytes"` // by anybody, with what the driver reserves
	Utilization *float64 `json:"utilization_ratio"` // 0 to 1: share of time in which any kernel ran
	MemoryBusy  *float64 `json:"memory_busy_ratio"` // 0 to 1: share of time in which memory was read or written
	PowerWatts  *float64 `json:"power_watts"`
	PowerLimit  *float64 `json:"power_limit_watts"` // the one that is enforced
	Temperature *int     `json:"temperature_celsius"`
	SMClockMHz  *int     `json:"sm_clock_mhz"`
	MaxClockMHz *int     `json:"sm_clock_max_mhz"`
	// Throttled are reasons for which its clocks are low; idling is none.
	Throttled []string `json:"throttled,omitempty"`
	// Processes are those that compute on it; null when that is not known.
	Processes []GPUProcess `json:"processes"`
	// Failed says why it reports nothing.
	Failed string `json:"failed,omitempty"`
}

// GPUProcess is a process that computes on a GPU.
type GPUProcess struct {
	PID         int    `json:"pid"`          // as its own namespace, or the host, numbers it
	MemoryBytes *int64 `json:"memory_bytes"` // of the GPU
}

// Inventory is the report without the figures that change.
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

// NodeStats are the figures of a node that change.
type NodeStats struct {
	NodeID string    `json:"node_id"`
	GPU    GPUReport `json:"gpu"`
}

// GPUSupport is what programs find of NVIDIA's driver on a machine: "dynamod gpus" prints
// it.
type GPUSupport struct {
	State   GPUState     `json:"state"`
	Error   string       `json:"error,omitempty"` // what is missing, unless all is well
	CUDA    string       `json:"cuda,omitempty"`  // version of the CUDA driver
	Devices []CUDADevice `json:"devices"`
	// Report is NVML's.
	Report GPUReport `json:"report"`
}

// GPUState says whether a machine can compute on GPUs.
type GPUState string

// The states of a machine's GPUs.
const (
	GPUsUsable    GPUState = "usable"
	GPUsNoLibrary GPUState = "no-library" // libcuda.so.1 is not there
	GPUsNoDevice  GPUState = "no-device"  // the driver has none
	GPUsTooOld    GPUState = "too-old"    // the driver
	GPUsUnusable  GPUState = "unusable"   // anything else; the error says what
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
	// Kernels are what the kernels that it would get are made for, such as sm_80, and sm_90a
	// for those that are faster on compute capability 9.0.
	Kernels []string `json:"kernels,omitempty"`
	Error   string   `json:"error,omitempty"` // why it cannot be used
}
