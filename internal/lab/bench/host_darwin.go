package bench

import "golang.org/x/sys/unix"

// cpuModel returns the processor's name, or "" if the system does not report it.
func cpuModel() string {
	name, err := unix.Sysctl("machdep.cpu.brand_string")
	if err != nil {
		return ""
	}
	return name
}

// totalMemory returns the memory of the machine in bytes, 0 if unknown.
func totalMemory() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}

// availableMemory is unknown on this system.
func availableMemory() int64 { return 0 }

// loadAverage is unknown on this system.
func loadAverage() float64 { return -1 }
