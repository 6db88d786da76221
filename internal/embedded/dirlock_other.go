//go:build !unix

package embedded

import "os"

// tryLock relies on the servers' own file locks where there is no flock.
func tryLock(*os.File) error { return nil }
