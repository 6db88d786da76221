package ucx

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// rdmaDevices lists the RDMA devices below root that have an active port, such as
// "mlx5_0:1". Those of AWS (EFA) are left out: UCX reaches a fraction of their speed.
func rdmaDevices(root string) (devices []string) {
	states, err := filepath.Glob(filepath.Join(root, "sys/class/infiniband/*/ports/*/state"))
	if err != nil {
		return nil // of a bad pattern, which this one is not
	}
	for _, path := range states {
		state, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(state), "ACTIVE") {
			continue
		}
		port := filepath.Dir(path)
		device := filepath.Dir(filepath.Dir(port))
		if driver, err := os.Readlink(filepath.Join(device, "device/driver")); err == nil && filepath.Base(driver) == "efa" {
			continue
		}
		devices = append(devices, filepath.Base(device)+":"+filepath.Base(port))
	}
	slices.Sort(devices)
	return devices
}
