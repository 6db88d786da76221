package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// GPU is a GPU or accelerator on the PCI bus.
type GPU struct {
	Vendor string `json:"vendor"` // NVIDIA, AMD or Intel
	Name   string `json:"name"`   // empty where only the vendor's driver knows it
	Bus    string `json:"bus"`    // address, as 0000:3b:00.0
	Driver string `json:"driver"` // kernel module bound to it; empty if none is
	// Version is the driver's version; empty where the driver does not report it.
	Version string `json:"version"`
}

// GPUs lists the GPUs and accelerators of the known vendors, sorted by address.
func (m Machine) GPUs() (out []GPU) {
	dirs, _ := filepath.Glob(filepath.Join(m.Root, "/sys/bus/pci/devices/*")) // a fixed pattern is never malformed
	slices.Sort(dirs)
	for _, dir := range dirs {
		vendor := map[string]string{"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}[line(filepath.Join(dir, "vendor"))]
		// Classes 0x03… are displays; 0x12… are accelerators.
		if class := line(filepath.Join(dir, "class")); vendor == "" || !strings.HasPrefix(class, "0x03") && !strings.HasPrefix(class, "0x12") {
			continue
		}
		g := GPU{Vendor: vendor, Bus: filepath.Base(dir)}
		if module, err := os.Readlink(filepath.Join(dir, "driver")); err == nil {
			g.Driver = filepath.Base(module)
			g.Version = line(filepath.Join(m.Root, "/sys/module", g.Driver, "version"))
		}
		if vendor == "NVIDIA" {
			g.Name = m.nvidiaName(g.Bus)
		}
		out = append(out, g)
	}
	return out
}

// nvidiaName returns the name that NVIDIA's driver gives a device.
func (m Machine) nvidiaName(bus string) string {
	b, err := os.ReadFile(filepath.Join(m.Root, "/proc/driver/nvidia/gpus", bus, "information"))
	if err != nil {
		return ""
	}
	for l := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(l, "Model:"); ok {
			return strings.TrimSpace(name)
		}
	}
	return ""
}

// RDMA lists the RDMA devices that libibverbs, and so UCX, can use.
func (m Machine) RDMA() (out []string) {
	entries, err := os.ReadDir(filepath.Join(m.Root, "/sys/class/infiniband"))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// line returns the first line of a file; empty if it cannot be read.
func line(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(first)
}
