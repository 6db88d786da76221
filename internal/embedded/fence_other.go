//go:build !linux

package embedded

import "errors"

// fence is not supported here: it needs a list of the process's open files.
func fence(string, *dirLock) error {
	return errors.New("its files stay locked until this process ends")
}

// hangUp does nothing here: it needs a list of the process's connections.
func hangUp(string) {}
