//go:build !linux

package host

import "runtime"

// AllowedCPUs returns the CPUs that this process may run on, ascending.
func AllowedCPUs() []int { return firstCPUs(runtime.NumCPU()) }

// Bind does nothing: this system cannot bind threads.
func Bind([]int) error { return nil }
