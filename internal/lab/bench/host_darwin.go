package bench

import "golang.org/x/sys/unix"

// cpuModel is the processor's name, empty when the system does not tell.
func cpuModel() string {
	name, err := unix.Sysctl("machdep.cpu.brand_string")
	if err != nil {
		return ""
	}
	return name
}

// totalMemory is the memory of the machine in bytes, 0 when unknown.
func totalMemory() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}

// availableMemory is not told here.
func availableMemory() int64 { return 0 }

// loadAverage is not told here.
func loadAverage() float64 { return -1 }
