package judge

import (
	"errors"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/host"
)

func TestDoctorOfGPUs(t *testing.T) {
	h100 := []host.GPU{{Vendor: "NVIDIA", Name: "NVIDIA H100", Bus: "0000:3b:00.0", Driver: "nvidia", Version: "550.54"}}
	bare := []host.GPU{{Vendor: "NVIDIA", Bus: "0000:3b:00.0"}, {Vendor: "AMD", Bus: "0000:3c:00.0", Driver: "amdgpu"}}
	amd := bare[1:]
	state := func(s cluster.GPUState, why string) *cluster.GPUSupport {
		return &cluster.GPUSupport{State: s, Error: why}
	}
	device := cluster.CUDADevice{Name: "NVIDIA H100", Capability: "9.0", MemoryBytes: 80 << 30, MemoryFree: 79 << 30}
	closed, exclusive := device, device
	closed.Error, exclusive.ComputeMode = "its compute mode prohibits processes", "exclusive"
	usable := &cluster.GPUSupport{State: cluster.GPUsUsable, CUDA: "12.4", Devices: []cluster.CUDADevice{device, closed, exclusive}, Report: cluster.GPUReport{Driver: "550.54.15"}}
	mute := *usable
	mute.Report = cluster.GPUReport{Missing: "NVIDIA's management library cannot be used: no permission"}
	for name, c := range map[string]struct {
		gpus   []host.GPU
		s      *cluster.GPUSupport
		asked  error
		status string
		found  string
		fix    string
	}{
		"none":                      {nil, state(cluster.GPUsNoLibrary, "x"), nil, OK, "none; workers compute on CPUs", ""},
		"none, and no dynamod":      {nil, nil, errors.New("no dynamod"), OK, "none; workers compute on CPUs", ""},
		"none, a driver":            {nil, state(cluster.GPUsNoDevice, "x"), nil, OK, "none; workers compute on CPUs", ""},
		"another vendor's":          {amd, state(cluster.GPUsNoLibrary, "x"), nil, OK, "AMD GPU at 0000:3c:00.0, driver amdgpu; workers compute on CPUs", ""},
		"usable":                    {h100, usable, nil, OK, "NVIDIA H100 (compute capability 9.0, 79.0 GiB of 80.0 GiB free); NVIDIA H100: its compute mode prohibits processes; NVIDIA H100 (compute capability 9.0, 79.0 GiB of 80.0 GiB free) for one process at a time; driver 550.54.15, CUDA 12.4; not used yet: workers compute on CPUs", ""},
		"usable, without figures":   {h100, &mute, nil, OK, "; no figures: NVIDIA's management library cannot be used: no permission", ""},
		"usable, not on the bus":    {nil, usable, nil, OK, "NVIDIA H100 (compute", ""},
		"no library":                {bare, state(cluster.GPUsNoLibrary, "no CUDA driver: libcuda.so.1"), nil, Warn, "NVIDIA GPU at 0000:3b:00.0 without a driver; AMD GPU at 0000:3c:00.0, driver amdgpu; no CUDA driver: libcuda.so.1; workers compute on CPUs", "install NVIDIA's driver"},
		"no device":                 {h100, state(cluster.GPUsNoDevice, "no device"), nil, Warn, "NVIDIA H100, driver nvidia 550.54; no device; workers", "CUDA_VISIBLE_DEVICES"},
		"too old":                   {h100, state(cluster.GPUsTooOld, "it knows CUDA 11.4"), nil, Warn, "NVIDIA H100, driver nvidia 550.54; it knows CUDA 11.4; workers", "release 525 or later"},
		"broken":                    {h100, state(cluster.GPUsUnusable, "system not ready"), nil, Warn, "system not ready", "nvidia-smi"},
		"nobody who could be asked": {h100, nil, errors.New("no dynamod"), Warn, "it is not known whether they can be used: no dynamod", ""},
	} {
		f := GPUs(c.gpus, c.s, c.asked)
		if f.Status != c.status || !strings.Contains(f.Found, c.found) || !strings.Contains(f.Fix, c.fix) || c.fix == "" && f.Fix != "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
