package host

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// AllowedCPUs returns the CPUs that the calling thread may run on, ascending. For a
// thread that was not bound, those are the CPUs of the process.
func AllowedCPUs() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil || set.Count() == 0 {
		return firstCPUs(runtime.NumCPU())
	}
	var cpus []int
	for cpu := 0; len(cpus) < set.Count() && cpu < maxCPU; cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// Bind restricts the calling thread to some CPUs. The caller must have locked its
// goroutine to the thread.
func Bind(cpus []int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	return unix.SchedSetaffinity(0, &set)
}
