//go:build amd64 && !linux

package kernel

// tilesPermitted is false where nobody has tried how to ask.
func tilesPermitted() bool { return false }
