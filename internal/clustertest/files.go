package clustertest

import (
	"os"
	"path/filepath"
	"syscall"
)

// holdFiles takes the lock of the store in files.
func (c *Cluster) holdFiles() (release func()) {
	c.t.Helper()
	f, err := os.OpenFile(filepath.Join(c.storeDir(), "store.lock"), os.O_RDWR, 0)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		c.t.Fatalf("hold the store in files: %v", err)
	}
	return func() { _ = f.Close() } // which releases it
}
