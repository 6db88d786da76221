//go:build !linux

package kvindex

// useHugePages leaves the choice of pages to the system.
func useHugePages([]bucket) {}
