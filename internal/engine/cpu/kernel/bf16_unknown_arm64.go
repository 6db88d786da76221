//go:build arm64 && !linux && !darwin

package kernel

// detectBF16 says no: how other systems tell was not tried.
func detectBF16() bool { return false }
