//go:build !linux && !darwin

package bench

// These systems are not queried, so the report says "unknown".

func cpuModel() string { return "" }

func totalMemory() int64 { return 0 }

func availableMemory() int64 { return 0 }

func loadAverage() float64 { return -1 }
