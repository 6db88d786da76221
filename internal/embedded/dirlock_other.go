//go:build !unix

package embedded

import "os"

// tryLock does nothing where there is no flock; the servers' own file locks must do.
func tryLock(*os.File) error { return nil }
