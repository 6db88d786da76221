//go:build amd64 && !linux

package kernel

// requestTiles refuses: how other systems give the use of tiles was not tried.
func requestTiles() bool { return false }
