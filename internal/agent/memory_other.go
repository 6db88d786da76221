//go:build !linux

package agent

// totalMemory and availableMemory are unknown on this system.
func totalMemory() int64 { return 0 }

func availableMemory() int64 { return 0 }
