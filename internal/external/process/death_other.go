//go:build !linux

package process

import (
	"errors"
	"syscall"
)

// dieWithParent does nothing: the watcher must do.
func dieWithParent(*syscall.SysProcAttr) {}

// awaitExit does not wait: the end of a child is seen by waiting for it.
func awaitExit(int) {}

// groupLives reports whether a group has processes.
func groupLives(group int) bool { return !errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) }
