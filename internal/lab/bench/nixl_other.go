//go:build !linux

package bench

// hostRoutes are the transports between processes of one host: none of their own.
func hostRoutes() []route { return nil }
