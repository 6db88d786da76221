//go:build !linux

package store_test

import "os/exec"

// dieWithParent does nothing: only Linux can do it.
func dieWithParent(*exec.Cmd) {}
