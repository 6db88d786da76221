package judge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/host"
)

// GPUs tells which GPUs there are on the bus, and what NVIDIA's driver makes of
// them. None is needed: workers compute on CPUs.
func GPUs(gpus []host.GPU, s *cluster.GPUSupport, asked error) Finding {
	found := listGPUs(gpus)
	nvidia := slices.ContainsFunc(gpus, func(g host.GPU) bool { return g.Vendor == "NVIDIA" })
	var f Finding
	switch {
	case asked != nil && nvidia:
		f = poor("", "%s; it is not known whether they can be used: %v", found, asked)
	case asked != nil || s.State == cluster.GPUsNoLibrary && !nvidia || s.State == cluster.GPUsNoDevice && !nvidia:
		f = good("%s; workers compute on CPUs", found)
	case s.State == cluster.GPUsUsable:
		f = good("%s; driver %s, CUDA %s; not used yet: workers compute on CPUs", listDevices(s.Devices), human.OrDash(s.Report.Driver), s.CUDA)
		if s.Report.Missing != "" {
			f.Found += "; no figures: " + s.Report.Missing
		}
	default:
		f = poor(gpuFix(s.State), "%s; %s; workers compute on CPUs", found, s.Error)
	}
	f = f.With("gpus", gpus)
	if s != nil {
		f = f.With("nvidia", s)
	}
	return f
}

// gpuFix suggests a remedy for GPUs that cannot be used.
func gpuFix(s cluster.GPUState) string {
	switch s {
	case cluster.GPUsNoLibrary:
		return "install NVIDIA's driver, release 525 or later; in a container: start it with --gpus all"
	case cluster.GPUsTooOld:
		return "update NVIDIA's driver to release 525 or later"
	case cluster.GPUsNoDevice:
		return "nvidia-smi says more; in a container: start it with --gpus all, and see CUDA_VISIBLE_DEVICES"
	}
	return "nvidia-smi says more"
}

// listGPUs names the GPUs on the bus.
func listGPUs(gpus []host.GPU) string {
	var parts []string
	for _, g := range gpus {
		text := g.Vendor + " GPU at " + g.Bus
		if g.Name != "" {
			text = g.Name
		}
		switch {
		case g.Driver == "":
			text += " without a driver"
		case g.Version == "":
			text += ", driver " + g.Driver
		default:
			text += ", driver " + g.Driver + " " + g.Version
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, "; ")
}

// listDevices describes the devices of the CUDA driver.
func listDevices(ds []cluster.CUDADevice) string {
	var parts []string
	for _, d := range ds {
		text := d.Name
		if d.Error != "" {
			parts = append(parts, text+": "+d.Error)
			continue
		}
		text += fmt.Sprintf(" (compute capability %s, %s of %s free)", d.Capability, human.Bytes(d.MemoryFree), human.Bytes(d.MemoryBytes))
		if d.ComputeMode == "exclusive" {
			text += " for one process at a time"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}
