//go:build !linux

package orphan

import "os/exec"

// Start starts cmd.
func Start(cmd *exec.Cmd) error { return cmd.Start() }

// Sweep does nothing.
func Sweep(string) (now func(), err error) { return func() {}, nil }
