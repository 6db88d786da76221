//go:build !linux

package bench

// hostRoutes returns nil: on this system there are no transports for one host only.
func hostRoutes() []route { return nil }
